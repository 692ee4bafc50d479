#!/usr/bin/env python3
"""Checks rules that no compiler knows: includes point down, CUDA stays in its folder, kernels keep their rules.

Usage: check.py [ROOT]. Prints one line per offence, `file:line: what is wrong`; exit status 1 when there is one.
"""
import collections
import pathlib
import re
import subprocess
import sys

MAX_LINES = 600
MAX_FILES = 25  # of a folder outside tests/
MANY_FILES = {"nn/position"}  # one file for each of a long list
MAX_README_LINES = 80  # each leads in; others hold designs, formulas, measurements
MAX_FIRST_README_LINES = 150  # the one at the top
TOP_LEVEL = {"core", "autograd", "nn", "cuda", "tasks", "tests",
             "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"}
# Folder -> the folders that its files may include. tests/ may include anything.
LAYERS = {
    "core": ["core"],  # without core/io, which is a layer of its own
    "autograd": ["core", "autograd"],
    "nn": ["core", "autograd", "nn"],
    "tasks": ["core", "autograd", "nn", "tasks"],
    "cuda": ["core", "cuda"],
}
# The folders of tasks/, from the bottom: each may include itself and those before it.
TASK_FOLDERS = ["library", "print", "text", "text/prepare", "data", "toy", "language", "evaluation", "training", "course/live", "runs", "checks",
                "inspect", "foreign", "results", "command_line", "sweep", "commands/parts", "commands"]
CODE = {".cpp", ".hpp", ".def", ".cu", ".cuh"}
SCRIPTS = {".py", ".js", ".sh", ".cmake", ".css", ".html"}
ONE_FILE = {pathlib.Path("tasks/tally.py")}  # people copy it next to their notebooks
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"(cuda|cublas|nccl|curand|cusparse|cudnn|nvtx|nvrtc|nvml|cooperative_groups|mma\.h|cub/|thrust/)")
RUNS_KERNELS = pathlib.Path("tasks/course/11_gpu")  # a chapter on kernels, which the CPU executes
MAY_READ_FILES = {"tasks"}  # autograd, nn and cuda only compute, wherever their numbers come from
# Library -> the one place that needs it: nothing that is installed may.
LIBRARIES = {"nlohmann": ("core/io/json_reader.cpp",), "CLI": ("tasks/command_line/", "tasks/sweep/", "tasks/commands/")}
BAD_NAME = re.compile(r"(^|_)(fast|optimi[sz]ed|utils?|misc|v2)(_|\.|$)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")

# Forbidden in kernels of cuda/ (cuda/README.md). The files of cuda/emulator replace CUDA and are no kernels.
KERNEL_RULES = [
    (re.compile(r"\b(asm|__asm__)\b"), "inline PTX", {"cuda/runtime/instructions.hpp"}),
    (re.compile(r"<<<"), "a kernel is started by launch() alone", {"cuda/runtime/launch.hpp"}),
    (re.compile(r"\b__shared__\b"), "shared memory is declared by SHARED or SHARED_DYNAMIC", {"cuda/runtime/launch.hpp"}),
    (re.compile(r"\b(tex[123]D\w*|cudaTexture\w*|cudaSurface\w*|surf[123]D\w*)\b"), "textures", set()),
    (re.compile(r"\bcooperative_groups\b|\bcudaLaunchCooperative\w*"), "cooperative groups", set()),
    (re.compile(r"\batomic(?!Add\b)[A-Z]\w*\s*\(|\batomicAdd\s*\(\s*(reinterpret_cast<)?\s*(float|double)\b"),
     "atomic operations are atomicAdd on whole numbers", set()),
    (re.compile(r"\b__(activemask|threadfence\w*|shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)\s*\("),
     "reliance on lock-step or on the order of memory", set()),
    (re.compile(r"\bcudaMallocManaged\b|\b__managed__\b"), "managed memory", set()),
    (re.compile(r"\bcuda(Malloc|Free|Memcpy|Memset)\s*\("), "a call that waits: take the one with Async", set()),
    (re.compile(r"\bcudaLaunchKernel\w*|\bcuLaunchKernel\w*"), "a kernel is started by launch() alone", set()),
    (re.compile(r"\bvolatile\b|\b__nanosleep\b"), "waiting by looking again", {"cuda/runtime/instructions.hpp"}),
    (re.compile(r"reinterpret_cast<\s*(const\s+)?(float|double)[24]\b"), "neighbours are read at once by vector_at", set()),
    (re.compile(r"\b(nvcuda|wmma)\b"), "tensor cores but by cuda/runtime/instructions.hpp", {"cuda/runtime/instructions.hpp"}),
    (re.compile(r"\b(CU(DA|BLAS)|NCCL)_CHECK\(\s*\w+\s*\)"), "CUDA_CHECK of a variable: its message names the call",
     {"cuda/runtime/check.hpp", "cuda/distributed/nccl.hpp"}),
]
# Code that differs between nvcc and the host execution: the code checked on the CPU would not be the code that a GPU
# runs.
COMPILER_SWITCH = re.compile(r"\b__CUDA(CC|_ARCH)__\b")
MAY_SWITCH = {"core/math/random.hpp", "cuda/runtime/runtime.hpp", "cuda/runtime/launch.hpp", "cuda/runtime/instructions.hpp", "cuda/runtime/cublas_loader.cu",
              "cuda/distributed/nccl.hpp", "cuda/distributed/nccl_loader.cu"}

# Facts about one encoding belong into that encoding's file. Names that are also words of the language count only as a
# whole string. Examples of --pe ("cope+rope", "--pe cope") do not count.
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
WORDS_TOO = {"none", "relative", "absolute", "hard", "fire", "sigmoid", "sink", "gated", "path", "wall"}
STRINGS_TOO = {"none", "sigmoid", "path"}  # of other things: an operation, a file
# These name encodings: to compare several, for foreign formats, in the examples of the help, in the course.
NAMES_ENCODINGS = {("nn", "position"), ("tasks", "library"), ("tasks", "foreign"), ("tasks", "command_line", "commands.def"),
                   ("tasks", "course")}
PE_EXAMPLE = re.compile(r'[\w-]+(?:[+@:,;][\w-]+)+|(?:--pe |encoding = ")[\w-]+')

# Header -> the largest number of source files that may include it, directly or not: each costs them compile time.
HEAVY_HEADERS = {"core/attention/score_mod.hpp": 60, "core/attention/problem.hpp": 215, "core/device/kernels.hpp": 170}

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE_IN_TEXT = re.compile(r"`[^`]*`")


def project_files(root):
    """Paths relative to root: files that git tracks or would add, or everything outside build/ without git."""
    try:
        listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                 cwd=root, capture_output=True, check=True)
        names = [pathlib.Path(name) for name in listing.stdout.decode().split("\0") if name]
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = [path.relative_to(root) for path in root.rglob("*") if path.relative_to(root).parts[0] != "build"]
    return sorted(name for name in names if (root / name).is_file())


def check_include(file, quote, path):
    folder = file.parts[0]
    top = path.split("/")[0]
    if quote == '"':
        if folder in LAYERS and top not in LAYERS[folder] and not (top == "cuda" and file.parent == RUNS_KERNELS):
            yield f'{folder}/ may include only {", ".join(LAYERS[folder])} (from the root), not "{path}"'
        if folder not in LAYERS and "/" not in path:
            yield f'"{path}": includes start at the root of the repository'
    if folder != "cuda" and (quote == "<" or top != "cuda") and CUDA_HEADER.match(path):
        yield f"CUDA header <{path}> outside cuda/"
    if folder in LAYERS and path.startswith("core/io/") and file.parts[:2] != ("core", "io") and folder not in MAY_READ_FILES:
        yield f'"{path}": {folder}/ stands below or beside core/io, which reads and writes files'
    if folder == "tasks" and top == "tasks":
        own, other = ("/".join(pathlib.PurePath(name).parts[1:-1]) for name in (file, path))
        if own not in TASK_FOLDERS or other not in TASK_FOLDERS:
            yield f'"{path}": TASK_FOLDERS of tests/structure/check.py lacks tasks/{own} or tasks/{other}'
        elif TASK_FOLDERS.index(other) > TASK_FOLDERS.index(own):
            yield f'"{path}": tasks/{other} is above tasks/{own}'
    if top in LIBRARIES and folder in LAYERS and not str(file).startswith(LIBRARIES[top]):
        yield f"<{path}> belongs to {LIBRARIES[top][0]}: nothing that is installed may need it"


def check_kernel_rules(file, line):
    code = line.split("//")[0]
    for pattern, what, allowed in KERNEL_RULES:
        if pattern.search(code) and str(file) not in allowed:
            yield f"not in kernels: {what}"


def check_encoding_names(file, line, encodings):
    in_generic_code = file.parts[0] in LAYERS and not {file.parts, file.parts[:2]} & NAMES_ENCODINGS
    code = PE_EXAMPLE.sub('"', line.split("//")[0]) if in_generic_code else ""
    for text in STRING.findall(code):
        for name in {text} - STRINGS_TOO | set(re.findall(r"[a-z][a-z0-9-]*", text)) - WORDS_TOO:
            if name in encodings:
                yield f"encoding {name}: what is said of it stands in its file in nn/position"


def check_code(file, lines, encodings):
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if include:
            for what in check_include(file, *include.groups()):
                yield number, what
        if file.parts[0] == "cuda" and file.parts[1] != "emulator":
            for what in check_kernel_rules(file, line):
                yield number, what
        for what in check_encoding_names(file, line, encodings):
            yield number, what
        if COMPILER_SWITCH.search(line.split("//")[0]) and str(file) not in MAY_SWITCH:
            yield number, f"only {', '.join(sorted(MAY_SWITCH))} may look which compiler it is"
        if UNFINISHED.search(line):
            yield number, "unfinished: " + line.strip()
    if file.suffix in {".hpp", ".cuh"} and not any(line.startswith("#pragma once") for line in lines):
        yield 1, "no #pragma once"


def anchors_of(lines):
    """What links can lead to in a page: its headings, as GitHub and others name them."""
    headings = (LINK.sub(lambda link: link[0][1:].partition("](")[0], line.lstrip("#").strip())
                for line in lines if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root, file, lines):
    in_block = False
    for number, line in enumerate(lines, 1):
        in_block ^= line.startswith("```")
        if in_block or line.startswith("    "):
            continue
        for target in LINK.findall(CODE_IN_TEXT.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue  # elsewhere: that is not asked
            path, _, anchor = target.partition("#")
            page = root / file.parent / path if path else root / file
            if not page.exists():
                yield number, f"a dead link: {target}"
            elif anchor and page.suffix == ".md" and anchor not in anchors_of(page.read_text().splitlines()):
                yield number, f"no such heading: {target}"


def check_shown_code(root, file, lines):
    """A block of C++ in a page must occur in a file of the folder that the last link before it leads to."""
    folder, begin = file.parent, None
    for number, line in enumerate(lines, 1):
        if begin is not None:
            if line.startswith("```"):
                shown = "\n".join(lines[begin:number - 1])
                others = (path for path in (root / folder).iterdir() if path.is_file() and path != root / file)
                if not any(shown in path.read_text(encoding="utf-8") for path in others):
                    yield begin, f"no file of {folder} contains this code"
                begin = None
        elif line == "```cpp":
            begin = number
        for target in LINK.findall(line):
            if (root / file.parent / target).is_file():
                folder = (file.parent / target).parent


# README.md links all pages of results, and reading.md explains them. Each page names its origin.
RESULTS = pathlib.Path("tests/results")
ORIGIN = {
    "machine": re.compile(r"\b(EPYC|Xeon|H100|H200)\b"),
    "day": re.compile(r"\b20\d\d-\d\d-\d\d\b"),
    "commit": re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}(-dirty)?\b"),
    "command": re.compile(r"\b(tally [a-z]+ |bash \S+\.sh|python3 |cmake --build)|`tests/\S+\.(py|sh)"),
}


def check_results(root, files):
    pages = [file for file in files if RESULTS in file.parents and file.suffix == ".md"]
    for page in pages:
        text = (root / page).read_text(encoding="utf-8") if page.name not in ("README.md", "reading.md", "full.md") else None
        missing = [what for what, pattern in ORIGIN.items() if text is not None and not pattern.search(text)]
        if missing:
            yield f"{page}: does not say its {', '.join(missing)}"
    for name in ("README.md", "reading.md"):
        index = RESULTS / name
        if index not in files:
            continue
        linked = {target.partition("#")[0] for target in LINK.findall((root / index).read_text(encoding="utf-8"))}
        for page in pages:
            if page.name not in ("README.md", "reading.md") and str(page.relative_to(RESULTS)) not in linked:
                yield f"{index}: no link to {page.relative_to(RESULTS)}"


def check_heavy_headers(root, files):
    direct = {}
    for file in files:
        if file.suffix in CODE:
            lines = (root / file).read_text(encoding="utf-8").splitlines()
            direct[str(file)] = [match[2] for match in map(INCLUDE.match, lines) if match and match[1] == '"']
    counts = dict.fromkeys(HEAVY_HEADERS, 0)
    for source in direct:
        if not source.endswith((".cpp", ".cu")):
            continue
        included, left = set(), [source]
        while left:
            new = set(direct.get(left.pop(), ())) - included
            included |= new
            left += new
        for header in included & counts.keys():
            counts[header] += 1
    for header, count in counts.items():
        if count > HEAVY_HEADERS[header]:
            yield f"{header}: {count} source files include it, {HEAVY_HEADERS[header]} at most: include a smaller header"


def check_folder_sizes(files):
    counts = collections.Counter(str(file.parent) for file in files if file.parts[0] in LAYERS)
    for folder, count in sorted(counts.items()):
        if count > MAX_FILES and folder not in MANY_FILES:
            yield f"{folder}: {count} files, {MAX_FILES} at most: sort them into folders"


def offences(root):
    files = project_files(root)
    yield from check_folder_sizes(files)
    yield from check_results(root, files)
    yield from check_heavy_headers(root, files)
    encodings = {file.stem.replace("_", "-") for file in files if file.match("nn/position/*.cpp")}
    for file in files:
        top = file.parts[0]
        if top not in TOP_LEVEL and not top.startswith("."):
            yield f"{file}: not one of the entries of the top level"
        if BAD_NAME.search(file.name):
            yield f"{file}: a name says what the file holds"
        try:
            lines = (root / file).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # data
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                yield f"{file}:{number}: a path of one machine: {line.strip()}"
        most = MAX_FIRST_README_LINES if file == pathlib.Path("README.md") else MAX_README_LINES
        if file.name == "README.md" and len(lines) > most:
            yield f"{file}: {len(lines)} lines, {most} at most"
        if file == pathlib.Path("README.md"):
            for number, what in check_shown_code(root, file, lines):
                yield f"{file}:{number}: {what}"
        if file.suffix == ".md":
            for number, what in check_links(root, file, lines):
                yield f"{file}:{number}: {what}"
        if file.suffix in CODE | SCRIPTS and file not in ONE_FILE and len(lines) > MAX_LINES:
            yield f"{file}:{len(lines)}: {len(lines)} lines, {MAX_LINES} at most"
        if file.suffix in CODE:
            for number, what in check_code(file, lines, encodings):
                yield f"{file}:{number}: {what}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    found = list(offences(root))
    print("\n".join(found) if found else "structure: no offence")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
