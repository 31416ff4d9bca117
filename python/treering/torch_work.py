"""Work: a call of torch.distributed in flight, and the thread that fulfils futures."""
import concurrent.futures
import threading
import time

import torch
import torch.distributed as dist

from treering.errors import Code, TreeringError

Base = getattr(dist, 'Work', None) or dist._Work
_POLL_S = 0.0002


class Work(Base):
    """What `async_op=True` returns. wait() raises TreeringError with the library's report."""

    def __init__(self, core, result, finish=None, opened=None):
        """core: the library's Work. finish: moves results to where the caller wants them, once.

        opened: a list that keeps this object alive until it is done (C++ holds only its own half).
        """
        super().__init__()
        self._core, self._result, self._finish = core, result, finish
        self._lock = threading.Lock()
        self._future = None
        self._error = None
        self._opened = opened

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else 0
        if seconds > 0:
            self._wait_at_most(seconds)
        try:
            self._core.wait()
        except TreeringError as error:
            self._error = error
            raise
        if self._finish is not None:
            self._run_finish()
        return True

    def _run_finish(self):
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()

    def _wait_at_most(self, seconds):
        end = time.monotonic() + seconds
        while not self._core.done():
            if time.monotonic() > end:
                raise TreeringError(f'the call was not done after {seconds} s, which is what wait() was given',
                                    Code.TIMEOUT)
            time.sleep(_POLL_S)

    def is_completed(self):
        return self._core.done()

    def is_success(self):
        return self._core.done() and self.exception() is None

    def exception(self):
        if self._error is None and self._core.done():
            try:
                self.wait()
            except TreeringError:
                pass
        return self._error

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return self._result

    def get_future(self):
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
        if self._core.done():
            self._fulfil()
        else:
            _waiter().submit(self._fulfil)
        return self._future

    def _fulfil(self):
        try:
            self.wait()
        except Exception as error:  # handed to whoever waits for the future
            self._future.set_exception(error)
        else:
            self._future.set_result(self._result)


class Done:
    """The library's Work of a call that had nothing to do."""

    def wait(self):
        pass

    def done(self):
        return True


_executor = None
_executor_lock = threading.Lock()


def _waiter():
    """The thread that waits for calls with futures, in the order in which the futures were asked for."""
    global _executor
    with _executor_lock:
        if _executor is None:
            _executor = concurrent.futures.ThreadPoolExecutor(1, 'treering-futures')
        return _executor
