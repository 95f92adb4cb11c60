"""The compiler of functions, the folder of compiled code, and the conditions of recompilation.

numba's own cache has one index file for each function, which two processes that start together may overwrite, and it
does not detect a change in a function that the cached one calls. Here each compiled function is a separate file,
whose name is a hash of everything it depends on: the bytecode and constants of the function and of all that
it calls, the types of its arguments, the processor, numba's settings, and the versions of Python, NumPy, numba and
LLVM. So a file is never out of date, and it is never changed. It begins with a checksum of its name and its content: a
file that is damaged, or has the name of another, is not used; its function is compiled and stored again.

For releases of numba that were tried, the compiler leaves out unnecessary work; for others it is unchanged.
"""

from __future__ import annotations

import _thread
import ctypes
import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
import threading
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from operator import call
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from streamkernel.locking import COMPILING, holding

log = logging.getLogger("streamkernel")

TRIED = ("0.66", "0.67", "0.68")
"""The releases of numba whose compilation is shortened: `make test-numbas` has tried it."""

RELEASE = numba.__version__.rpartition(".")[0]

if vars(config)["DISABLE_JIT"]:
    raise ImportError(
        "streamkernel cannot run without numba's compiler, which NUMBA_DISABLE_JIT=1 or disable_jit in "
        ".numba_config.yaml switches off; remove that setting"
    )
try:
    if RELEASE not in TRIED:
        raise ImportError(f"one of {', '.join(TRIED)}")
    from streamkernel.jit import from_python, shortcuts
except (ImportError, AttributeError) as missing:
    if RELEASE in TRIED:
        log.warning(
            "compiling takes longer: numba %s has other internals than expected: %s", numba.__version__, missing
        )
    DURATION = f"a minute or two with numba {RELEASE}, and less with {', '.join(TRIED)}"
    IS_SHORT = False
    own_compiler: dict[str, Any] = {}
    linked_compiler: dict[str, Any] = {}

    def only_what_is_used() -> AbstractContextManager[Any]:
        """Prevent other threads from compiling meanwhile."""
        lock: AbstractContextManager[Any] = global_compiler_lock
        return lock

    def quick_to_compare(dispatcher: Any) -> Any:
        """Return a compiled function unchanged."""
        return dispatcher

    def hold(value: Any, kind: Any) -> Any:
        """Return a tuple unchanged."""
        return value

else:
    from_python.use()
    DURATION = "some seconds"
    IS_SHORT = True
    own_compiler, linked_compiler = {"pipeline_class": shortcuts.Once}, {"pipeline_class": shortcuts.OnlyLinked}
    only_what_is_used, quick_to_compare = shortcuts.only_what_is_used, shortcuts.quick_to_compare
    hold = from_python.hold


CALLS = "tuples by reference, or held" if IS_SHORT else "tuples by value"
"""The calling convention of compiled functions: functions with different conventions cannot call each other."""

F = TypeVar("F", bound=Callable[..., Any])

CHECK = 4
"""Bytes of the checksum at the beginning of a file."""

DEPTH = 500
"""Calls inside each other that numba may need; with less than 300 it failed."""

NOT_OF_CODE = "CUDA", "CACHE_", "NUM_THREADS", "THREADING_LAYER", "GDB_", "COLOR_", "WARNINGS"
"""Parts of the names of numba's settings on which compiled code does not depend."""

PACKAGE = Path(__file__).resolve().parents[1]

STACK = 1 << 17
"""Values in the frame of the function that compiles. Python keeps frames in pieces of memory of 16 KB, and maps
and unmaps one at each call that crosses the end of a piece, which took a tenth of a first start. A large frame gets a
larger piece, and the rest of it holds the frames of all calls inside."""


def compiled(function: F | None = None, *, allocates: bool = True, **options: Any) -> Any:
    """Compile a function with numba when it is first called, and store the result on disk.

    A function that does not allocate arrays need not count references to its arguments, which for a single event takes
    as long as the mathematics. `options` are as for :func:`numba.njit`.
    """
    if function is None:
        return lambda function: compiled(function, allocates=allocates, **options)
    options |= {"no_cfunc_wrapper": True, "_nrt": allocates}  # always set: otherwise numba uses the caller's
    dispatcher = quick_to_compare(numba.njit(function, **own_compiler, **options))
    dispatcher._cache = FileCache(function, _text(options))
    dispatcher._compile_for_args = partial(run_uninterrupted, dispatcher._compile_for_args)
    return dispatcher


def run_uninterrupted(do: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Run a function in a separate thread, and wait without Python code: handlers of signals run afterwards.

    An exception inside numba or LLVM can leave them in a state that crashes the process, and so can the end of the
    process meanwhile. The new thread has no calls yet, so that the limit of calls is not reached either. No process is
    forked during the call. Raise a RecursionError if the limit of calls is too low for numba.
    """
    if threading.get_ident() in _uninterrupted:
        return _run_alone(do, arguments, options)
    if sys.getrecursionlimit() < DEPTH:
        raise RecursionError(
            f"expected a recursion limit of at least {DEPTH} to load or compile code, got {sys.getrecursionlimit()}; "
            "see sys.setrecursionlimit"
        )
    outcome: list[Any] = []
    errors: list[BaseException] = []
    ended = _allocate_lock()
    _acquire_lock(ended, 1)

    def run() -> Iterator[None]:
        try:
            yield  # where the thread begins: an exception that is sent to it ends the wait, even at its first step
            _uninterrupted.add(threading.get_ident())
            outcome.append(holding(COMPILING, _run_alone, do, arguments, options))
        except BaseException as error:
            errors.append(error)
        finally:
            _uninterrupted.discard(threading.get_ident())
            _release_lock(ended)

    work = run()
    next(work)
    # between the two calls, or between two attempts to wait, Python would run a handler, whose exception would end this
    list(map(call, (partial(_thread.start_new_thread, next, (work, None)), partial(_acquire_lock, ended, 1))))
    _free_lock(ended)
    if errors:
        raise errors[0]
    return outcome[0]


def _run_alone(do: Callable[..., Any], arguments: Any, options: Any) -> Any:
    with only_what_is_used():
        return do(*arguments, **options)


_run_alone.__code__ = _run_alone.__code__.replace(co_stacksize=STACK)


_uninterrupted: set[int] = set()
"""The threads of :func:`run_uninterrupted`."""

# The locks of the threading module run handlers of signals while they wait.
_PYTHON = ctypes.CDLL(None, handle=ctypes.pythonapi._handle)  # calls without the interpreter's lock
_allocate_lock = ctypes.CFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", _PYTHON))
_acquire_lock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(("PyThread_acquire_lock", _PYTHON))
_release_lock = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("PyThread_release_lock", _PYTHON))
_free_lock = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("PyThread_free_lock", _PYTHON))


class FileCache(NullCache):
    """The cache in which numba looks compiled code up, and stores it after compilation."""

    def __init__(self, function: Callable[..., Any], options: str = "") -> None:
        self._function, self._options = function, options

    @property
    def cache_path(self) -> str | None:
        """The folder, or ``None``."""
        directory = folder()
        return None if directory is None else str(directory)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for argument types, ``None`` if it has to be compiled."""
        target_context.refresh()
        name = self._name(sig, target_context.codegen())
        for directory in folders():
            with suppress(OSError, AttributeError, ImportError):  # the last two: it needs code of another release
                stored = memoryview((directory / name).read_bytes())
                if stored[:CHECK] == checksum(name, stored[CHECK:]):
                    return CompileResult._rebuild(target_context, *pickle.loads(stored[CHECK:]))
        _announce()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function; if the disk is full or missing, the next process compiles it again."""
        target = folder()
        if target is None or data.library.has_dynamic_globals:
            return
        name = self._name(sig, data.codegen)
        with suppress(OSError), tempfile.TemporaryDirectory(dir=target) as draft:
            content = dumps(data._reduce())
            (Path(draft) / name).write_bytes(checksum(name, content) + content)
            (Path(draft) / name).replace(target / name)

    def _name(self, sig: Any, codegen: Any) -> str:
        made_from = (
            fingerprint(self._function),
            self._options,
            str(sig),
            codegen.magic_tuple(),
            [getattr(config, name) for name in _settings()],
            sys.version,
            [package.__version__ for package in (np, numba, llvmlite)],
            CALLS,
        )
        name = f"{self._function.__module__}.{self._function.__name__}"
        return f"{name}-{hashlib.blake2b(repr(made_from).encode(), digest_size=16).hexdigest()}.numba"


def checksum(name: str, content: Any) -> bytes:
    """Return the checksum with which a file of a name and a content begins."""
    return zlib.crc32(content, zlib.crc32(name.encode())).to_bytes(CHECK, "little")


@cache
def _settings() -> list[str]:
    """Return the names of numba's settings, except those on which compiled code certainly does not depend."""
    names = [name for name in vars(config) if name.isupper() and not name.startswith("_")]
    return sorted(name for name in names if not any(part in name for part in NOT_OF_CODE))


def folder() -> Path | None:
    """Return the folder in which compiled code is stored, ``None`` if no folder is writable."""
    usable = folders()
    return usable[-1] if usable and _is_writable(usable[-1]) else None


@cache
def folders() -> list[Path]:
    """Return the folders in which compiled code is looked up; the last one alone may be writable.

    They are ``NUMBA_CACHE_DIR`` if that is set, or else these up to the first writable one: a folder beside the
    sources, the user's cache folder, and a private folder of the user in the temporary folder. Those that cannot be
    written, such as an image's, are read.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        candidates = [Path(os.environ["NUMBA_CACHE_DIR"]) / "streamkernel"]
    else:
        user = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if _has_home() else None)
        candidates = [PACKAGE / "__pycache__", *([Path(user) / "streamkernel"] if user else []), _temporary()]
    usable = []
    for candidate in candidates:
        with suppress(OSError):
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
            if candidate == _temporary():
                check_own(candidate)
                log.warning("compiled code is stored in %s; NUMBA_CACHE_DIR can name a better folder", candidate)
            usable.append(candidate)
            if _is_writable(candidate):
                break
    return usable


@cache
def _is_writable(path: Path) -> bool:
    with suppress(OSError):
        tempfile.TemporaryFile(dir=path).close()
        return True
    return False


def _has_home() -> bool:
    with suppress(RuntimeError):
        return Path.home().is_absolute()
    return False


def _temporary() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(tempfile.gettempdir()) / f"streamkernel-{user}"


def check_own(path: Path) -> None:
    """Raise a PermissionError unless only the user can access a folder: its content is executed."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or (
        hasattr(os, "getuid") and (status.st_uid, status.st_mode & 0o077) != (os.getuid(), 0)
    ):
        raise PermissionError(f"expected a folder of this user that no other user can read or write - at {path}")


@cache
def _announce() -> None:
    """Announce compilation once per process, by a warning, because Python shows warnings without logging configured."""
    if folder() is None:
        log.warning(
            "compiled code cannot be stored, so each process compiles for some seconds; "
            "set NUMBA_CACHE_DIR to a writable folder that is not shared with other users"
        )
    log.warning("compiling for this machine, once; this takes %s", DURATION)


@cache
def fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of what a function computes: its code, and all functions and constants of this package it uses."""
    digest = hashlib.blake2b(digest_size=16)
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", function)]
    while pending:
        name, value = pending.pop()
        digest.update(f"{name} {_text(getattr(value, 'targetoptions', {}))}".encode())
        value = getattr(value, "py_func", getattr(value, "_defn", value))  # of compiled functions, of intrinsic ones
        if isinstance(value, (types.FunctionType, type, types.ModuleType)):
            if id(value) in seen:
                continue
            seen.add(id(value))
        if isinstance(value, types.FunctionType):
            digest.update(f"{value.__module__}.{value.__qualname__}{value.__defaults__}".encode())
            if _is_own(value.__module__):
                names = _code(value.__code__, digest)
                pending += [(name, value.__globals__[name]) for name in names if name in value.__globals__]
                pending += [("", cell.cell_contents) for cell in value.__closure__ or ()]
                modules = [m for m in value.__globals__.values() if isinstance(m, types.ModuleType)]
                modules = [m for m in modules if _is_own(m.__name__)]
                pending += [(name, vars(m)[name]) for m in modules for name in names if name in vars(m)]
        elif isinstance(value, (type, types.ModuleType)):
            digest.update(f"{value.__name__}{getattr(value, '_fields', '')}".encode())  # fields are read by position
        else:
            digest.update(str(getattr(value, "fingerprint", value)).encode())
    return digest.hexdigest()


def _is_own(module: str) -> bool:
    """Return whether a module is one of this package."""
    return module.partition(".")[0] == __package__.partition(".")[0]


def _text(options: Mapping[str, Any]) -> str:
    """Return options as text that is the same in every process."""
    return repr(sorted((name, sorted(value) if isinstance(value, set) else value) for name, value in options.items()))


def _code(code: types.CodeType, digest: Any) -> list[str]:
    """Add a function's code to a hash, without its docstring, and return the names that it uses."""
    names = list(code.co_names)
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            names += _code(constant, digest)
        elif i or not isinstance(constant, str):
            digest.update(repr(constant).encode())
    return names
