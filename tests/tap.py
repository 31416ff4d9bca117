"""The little of the Test Anything Protocol that the script tests need.

    tap = Tap()
    tap.check('the sky is blue', colour == 'blue', f'it is {colour}')
    tap.done()
"""
import sys


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def check(self, name, ok, *details):
        """One test. details: lines that explain a failure (strings, or lists of strings)."""
        self.count += 1
        print(f'{"ok" if ok else "not ok"} {self.count} - {name}')
        if not ok:
            self.failed += 1
            for detail in details:
                for line in [detail] if isinstance(detail, str) else detail:
                    for part in str(line).rstrip().splitlines():
                        print(f'# {part}')
        sys.stdout.flush()
        return ok

    def none(self, name, problems):
        """One test: the list of problems is empty."""
        return self.check(name, not problems, problems)

    def skip(self, name, why):
        self.count += 1
        print(f'ok {self.count} - {name} # SKIP {why}', flush=True)

    def done(self):
        print(f'1..{self.count}')
        sys.exit(1 if self.failed else 0)
