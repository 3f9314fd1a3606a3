"""Put a program into a Windows job object, which ends its processes when it is closed.

Windows closes it, too, when its owner dies.

https://learn.microsoft.com/windows/win32/procthread/job-objects
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def contain(pid: int) -> Callable[[], None] | None:
    """Put a process, and all that it will start, into a job; return a function that ends them.

    Return None if there are no jobs, or if Windows refuses one.
    """
    if sys.platform == "win32":
        try:
            return _Job(pid).close
        except OSError:
            return None
    return None


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMIT_INFORMATION = 9
    _SET_QUOTA_AND_TERMINATE = 0x0101

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    def _kernel() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
        kernel.SetInformationJobObject.argtypes = (
            wintypes.HANDLE,
            ctypes.c_int,
            wintypes.LPVOID,
            wintypes.DWORD,
        )
        kernel.OpenProcess.restype = wintypes.HANDLE
        kernel.OpenProcess.argtypes = (wintypes.DWORD, wintypes.BOOL, wintypes.DWORD)
        kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
        kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
        return kernel

    class _Job:
        """A job with the process `pid` in it. Raises OSError where Windows refuses one."""

        def __init__(self, pid: int) -> None:
            self._kernel = _kernel()
            self._job = self._kernel.CreateJobObjectW(None, None)
            if not self._job:
                raise ctypes.WinError(ctypes.get_last_error())
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            is_limited = self._kernel.SetInformationJobObject(
                self._job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            process = self._kernel.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, pid)
            is_assigned = process and self._kernel.AssignProcessToJobObject(self._job, process)
            code = ctypes.get_last_error()
            if process:
                self._kernel.CloseHandle(process)
            if not (is_limited and is_assigned):
                self.close()
                raise ctypes.WinError(code)

        def close(self) -> None:
            """End every process that is in the job."""
            if self._job:
                self._kernel.CloseHandle(self._job)
                self._job = None
