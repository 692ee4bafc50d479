#include "tasks/command_line/command.hpp"

int main(int argc, char** argv) { return tally::run_program(argc, argv); }
