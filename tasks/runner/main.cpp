#include "tasks/runner/command.hpp"

int main(int argc, char** argv) { return tally::run_program(argc, argv); }
