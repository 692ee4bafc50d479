"""The errors that planted.py plants: small ones, of the kind that a careful reader lets pass. One file for each layer."""
import errors_autograd
import errors_core
import errors_cuda
import errors_nn
import errors_ranks
import errors_runner
import errors_tasks

ERRORS = [error
          for layer in (errors_core, errors_cuda, errors_autograd, errors_nn, errors_tasks, errors_ranks, errors_runner)
          for error in layer.ERRORS]
