"""What goes wrong, as Python exceptions."""
import enum


class Code(enum.IntEnum):
    """tr_result_t. Of the first three, nothing happened; the others leave the communicator failed."""
    INVALID_ARGUMENT = 1
    INVALID_USAGE = 2
    UNSUPPORTED = 3
    SYSTEM_ERROR = 4
    REMOTE_ERROR = 5
    TIMEOUT = 6
    MISMATCH = 7
    ABORTED = 8
    INTERNAL_ERROR = 9


class TreeringError(RuntimeError):
    """An error of the library. `code` says which kind, the text is its report: who did, or did not do, what."""

    def __init__(self, text, code=Code.INTERNAL_ERROR):
        super().__init__(text)
        self.code = Code(code)

    def __reduce__(self):
        return type(self), (str(self), int(self.code))
