"""Errors of CUDA kernels, found by their execution on the CPU."""
from planted_error import Planted

ERRORS = [
    Planted("down-own-rows-carried", "cuda/attention_down.hpp",
            find="      here = static_cast<T>(sum);\n      sum += static_cast<double>(of_unit);\n",
            replace="      sum += static_cast<double>(of_unit);\n      here = static_cast<T>(sum);\n",
            what="what is carried down the queries to 32 rows has the sums of these rows in it already",
            found_by=["nn/CudaHost/Down.*"]),
    Planted("down-neighbour-of-other-rows", "cuda/attention_scan.hpp",
            find="if (other / 2 != warp / 2 || other < 0 ||",
            replace="if (other < 0 ||",
            what="a warp adds its neighbour's sums of columns also where those are carried to it",
            found_by=["nn/CudaHost/Down.*"]),
    Planted("down-own-query-masks", "cuda/attention_scan.hpp",
            find="  return others > 0 ? without : T{0};\n",
            replace="  return (void)without, upto;\n",
            what="sums down the queries have the gate of the query itself",
            found_by=["nn/CudaHost/Down.*"]),
    Planted("down-rows-not-carried", "cuda/attention_down.hpp",
            find="if (at.warp % 2 != 0 || at.first >= at.queries",
            replace="if (at.warp % 4 != 0 || at.first >= at.queries",
            what="of a block's rows only the first 32 are carried on",
            found_by=["nn/CudaHost/Down.*"]),
]
