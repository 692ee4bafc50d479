#!/usr/bin/env python3
"""check.py reports each kind of offence, and nothing that is allowed."""
import pathlib
import tempfile
import unittest

import check

PRAGMA = "#pragma once\n"


class CheckTest(unittest.TestCase):
    def found(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return list(check.offences(pathlib.Path(folder)))

    def assert_offence(self, name, text, words):
        found = self.found(name, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_allowed(self):
        self.assertEqual(self.found("nn/layers/linear.cpp", '#include <vector>\n#include "core/tensor.hpp"\n'), [])
        self.assertEqual(self.found("tests/nn/linear_test.cpp", '#include "nn/layers/linear.hpp"\n'), [])
        self.assertEqual(self.found("tasks/commands/arguments.hpp", PRAGMA + "#include <CLI/CLI.hpp>\n"), [])
        self.assertEqual(self.found("cuda/launch.cuh", PRAGMA + "#include <cuda_runtime.h>\n"), [])
        self.assertEqual(self.found(".gitignore", "/build/\n"), [])

    def test_a_readme_leads_in(self):
        self.assertEqual(self.found("nn/README.md", "line\n" * 80), [])
        self.assert_offence("nn/README.md", "line\n" * 81, "81 lines, 80 at most")

    def test_links_lead_somewhere(self):
        page = "# A [title](README.md), once\n[itself](README.md) [again](#a-title-once) [out](https://example.org/x)\n"
        self.assertEqual(self.found("nn/README.md", page + "`[i](j)` is code\n```\n[i](j)\n```\n"), [])
        self.assert_offence("nn/README.md", page + "[gone](gone.md)\n", "nn/README.md:3: a dead link: gone.md")
        self.assert_offence("nn/README.md", page + "[gone](#a-title)\n", "nn/README.md:3: no such heading: #a-title")

    def test_shown_code_exists(self):
        self.assert_offence("README.md", "```cpp\nint x;\n```\n", "README.md:1: no file of . contains this code")

    def test_a_folder_has_few_files(self):
        with tempfile.TemporaryDirectory() as folder:
            nn = pathlib.Path(folder, "nn/layers")
            nn.mkdir(parents=True)
            for n in range(check.MAX_FILES + 1):
                self.assertEqual(list(check.offences(pathlib.Path(folder))), [])
                (nn / f"layer{n}.cpp").write_text("")
            self.assertEqual(len(list(check.offences(pathlib.Path(folder)))), 1)

    def test_folders_of_tasks_include_downwards(self):
        header = '#include "tasks/runs/config.hpp"\n'
        self.assertEqual(self.found("tasks/results/report.cpp", header), [])
        self.assert_offence("tasks/training/train_step.cpp", header, "tasks/runs is above tasks/training")
        self.assert_offence("tasks/elsewhere/a.cpp", header, "TASK_FOLDERS of tests/structure/check.py lacks")

    def test_heavy_headers_have_a_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            core = pathlib.Path(folder, "core/attention")
            core.mkdir(parents=True)
            tests = pathlib.Path(folder, "tests")
            tests.mkdir()
            (core / "pair.hpp").write_text(PRAGMA)
            (core / "between.hpp").write_text(PRAGMA + '#include "core/attention/score_mod.hpp"\n')
            limit = check.HEAVY_HEADERS["core/attention/score_mod.hpp"]
            for n in range(limit + 1):
                self.assertEqual(list(check.offences(pathlib.Path(folder))) if n == limit else [], [])
                (tests / f"unit{n}.cpp").write_text('#include "core/attention/between.hpp"\n')
            found = list(check.offences(pathlib.Path(folder)))
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"{limit + 1} source files include it, {limit} at most", found[0])

    ORIGIN = "`tally reproduce table2`, an AMD EPYC, 2026-11-24, commit 152b401\n"

    def test_results_say_where_they_come_from(self):
        self.assertEqual(self.found("tests/results/table2.md", self.ORIGIN), [])
        for what, words in (("machine", "an AMD EPYC"), ("day", "2026-11-24"), ("commit", "152b401"),
                            ("command", "tally reproduce")):
            self.assert_offence("tests/results/table2.md", self.ORIGIN.replace(words, ""), f"does not say its {what}")

    def test_results_are_found_and_told_of(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder, "tests/results")
            (results / "demo").mkdir(parents=True)
            for name in ("table2.md", "demo/table.md"):
                (results / name).write_text("# Table\n" + self.ORIGIN)
            (results / "README.md").write_text("[2](table2.md) [demo](demo/table.md) [what they say](reading.md)\n")
            (results / "reading.md").write_text("## [Table 2](table2.md#table)\n")
            self.assertEqual(list(check.offences(pathlib.Path(folder))),
                             ["tests/results/reading.md: no link to demo/table.md"])

    def test_include_upwards(self):
        self.assert_offence("core/tensor.hpp", PRAGMA + '#include "autograd/ops.hpp"\n', "core/tensor.hpp:2: core/ may")
        self.assert_offence("autograd/ops.hpp", PRAGMA + '#include "nn/layers/linear.hpp"\n', "autograd/ may include only")
        self.assert_offence("nn/layers/linear.cpp", '#include "tasks/data/task.hpp"\n', "nn/ may include only")
        self.assert_offence("cuda/softmax.cu", '#include "autograd/ops.hpp"\n', "cuda/ may include only core, cuda")
        self.assert_offence("core/device/kernels.cpp", '#include "cuda/launch.cuh"\n', "core/ may include only core")

    def test_include_without_folder(self):
        self.assert_offence("core/tensor.cpp", '#include "tensor.hpp"\n', "core/ may include only core")
        self.assert_offence("tests/core/tensor_test.cpp", '#include "cases.hpp"\n', "start at the root")

    def test_cuda_header_outside(self):
        self.assert_offence("core/device/device.cpp", "#  include <cuda_runtime.h>\n", "outside cuda/")
        self.assert_offence("tests/core/device_test.cpp", "#include <cublas_v2.h>\n", "outside cuda/")
        self.assert_offence("tests/core/device_test.cpp", "#include <cuda/std/array>\n", "outside cuda/")
        self.assertEqual(self.found("tests/cuda/stream_test.cpp", '#include "cuda/runtime/launch.hpp"\n'), [])

    def test_encoding_named_in_generic_code(self):
        def found(line, name="nn/transformer.cpp"):
            with tempfile.TemporaryDirectory() as folder:
                for file, text in {"nn/position/rope.cpp": "", "nn/position/hard.cpp": "", name: line}.items():
                    pathlib.Path(folder, file).parent.mkdir(parents=True, exist_ok=True)
                    pathlib.Path(folder, file).write_text(text + "\n", encoding="utf-8")
                return list(check.offences(pathlib.Path(folder)))

        for line in ['if (name == "rope") {', 'note = "xpos turns q as rope does";', 'if (name == "hard") {']:
            self.assertEqual(len(found(line)), 1, line)
            self.assertEqual(found(line, "nn/position/xpos.cpp"), [])
            self.assertEqual(found(line, "tests/nn/rope_test.cpp"), [])
        for line in ['help = "a sum (cope+rope), --pe rope";', 'note = "hard to say";', 'x = 1;  // as "rope" does']:
            self.assertEqual(found(line), [], line)

    def test_compiler_switch(self):
        for name in ["cuda/softmax.cu", "cuda/emulator/block.cpp", "core/tensor.cpp", "tests/cuda/stream_test.cpp"]:
            self.assert_offence(name, "#if defined(__CUDACC__)\n", "which compiler")
        self.assert_offence("cuda/softmax.cu", "#if __CUDA_ARCH__ >= 900\n", "which compiler")
        self.assertEqual(self.found("cuda/runtime/runtime.hpp", PRAGMA + "#if defined(__CUDACC__)\n"), [])

    def test_kernel_rules(self):
        for code, words in [('asm("bar.sync 0;");', "inline PTX"), ("add<<<1, 32>>>(y);", "launch() alone"),
                            ("__shared__ float a[32];", "SHARED"), ("tex2D<float>(t, x, y);", "textures"),
                            ("namespace cg = cooperative_groups;", "cooperative groups"),
                            ("atomicMax(y, 3);", "whole numbers"), ("atomicAdd(float(y), 1.0f);", "whole numbers"),
                            ("const unsigned lanes = __activemask();", "lock-step"), ("__threadfence();", "lock-step"),
                            ("v += __shfl_down(v, 1);", "lock-step"), ("cudaMallocManaged(&p, 4);", "managed"),
                            ("y = *reinterpret_cast<const float4*>(p);", "vector_at"),
                            ("CUDA_CHECK(cudaMalloc(&p, 4));", "Async"), ("cudaMemcpy (a, b, 4, kind);", "Async"),
                            ("cudaLaunchKernelExC(&c, f, a);", "launch() alone"),
                            ("volatile int* flag;", "looking again"), ("__nanosleep(20);", "looking again"),
                            ("nvcuda::mma_sync(d, a, b, c);", "tensor cores"),
                            ("CUDA_CHECK(error);", "names the call"), ("CUBLAS_CHECK( status );", "names the call")]:
            self.assert_offence("cuda/softmax.cu", code + "\n", words)
        for name, code in [("cuda/runtime/launch.hpp", PRAGMA + "kernel<<<grid, block>>>(); __shared__ T name[n];"),
                           ("cuda/runtime/instructions.hpp", PRAGMA + '#if defined(__CUDACC__)\nasm volatile("mma.sync;");'),
                           ("cuda/b.cu", "CUDA_CHECK(cudaMallocAsync(&p, 4, stream)); cudaFreeAsync(p, stream);"),
                           ("cuda/emulator/fiber.cpp", 'asm("ret");'),
                           ("cuda/a.cu", "atomicAdd(count, 1); v += __shfl_down_sync(all, v, 1);  // no <<< here")]:
            self.assertEqual(self.found(name, code + "\n"), [])

    def test_files_are_a_layer(self):
        for name in ["core/tensor.cpp", "autograd/node.cpp", "nn/module.cpp", "cuda/runtime/context.cu"]:
            self.assert_offence(name, '#include "core/io/json.hpp"\n', "core/io, which reads and writes files")
        for name in ["core/io/npy.cpp", "tasks/runs/config.cpp", "tasks/commands/info.cpp", "tests/nn/a_test.cpp"]:
            self.assertEqual(self.found(name, '#include "core/io/json.hpp"\n#include "core/tensor.hpp"\n'), [])

    def test_libraries(self):
        self.assert_offence("core/io/npy.cpp", "#include <nlohmann/json.hpp>\n", "belongs to core/io/json_reader.cpp")
        self.assert_offence("tasks/commands/eval.cpp", "#include <nlohmann/json.hpp>\n", "belongs to core/io/json_reader.cpp")
        self.assertEqual(self.found("core/io/json_reader.cpp", "#include <nlohmann/json.hpp>\n"), [])
        self.assert_offence("tasks/data/task.hpp", PRAGMA + "#include <CLI/CLI.hpp>\n", "belongs to tasks/command_line")

    def test_top_level(self):
        self.assert_offence("scripts/run.sh", "echo\n", "top level")
        self.assert_offence("notes.md", "notes\n", "top level")

    def test_file(self):
        self.assert_offence("core/long.cpp", "\n" * (check.MAX_LINES + 1), f"{check.MAX_LINES + 1} lines")
        self.assert_offence("tasks/long.py", "\n" * (check.MAX_LINES + 1), f"{check.MAX_LINES + 1} lines")
        self.assert_offence("core/once.hpp", "int f();\n", "pragma once")
        self.assert_offence("core/string_utils.cpp", "\n", "a name says")
        self.assert_offence("core/a.cpp", "// TO" + "DO later\n", "unfinished")
        self.assert_offence("tests/run.sh", "cd /ho" + "me/someone/tally\n", "a path of one machine")


if __name__ == "__main__":
    unittest.main()
