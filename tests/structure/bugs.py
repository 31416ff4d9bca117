"""tests/faults/BUGS.md: every report has a row, and every test that a row names exists."""
import re

TABLE = 'tests/faults/BUGS.md'
REPORTS = [f'H{n:02}' for n in range(1, 39)]


def rows_of(text):
    """[(report, last column)]"""
    return re.findall(r'^\| (H\d\d) \|[^|]*\|([^\n]*)\|$', text, re.M)


def problems_of(text, tests):
    out = []
    rows = rows_of(text)
    reports = [report for report, _ in rows]
    if reports != REPORTS:
        odd = sorted(set(REPORTS) ^ set(reports)) or 'their order'
        out.append(f'{TABLE}: one row for each of H01 to H38, in order: {odd}')
    for report, where in rows:
        if not where.strip():
            out.append(f'{TABLE}: {report}: neither a test nor a sentence')
        for suite, name in re.findall(r'`(\w+)\.(\w+)`', where):
            if (suite, name) not in tests:
                out.append(f'{TABLE}: {report}: there is no test {suite}.{name}')
    return out


def tests_of(text):
    return set(re.findall(r'\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)', text))


def check(tree):
    tests = set()
    for path in tree.under('tests'):
        if path.endswith(('.cpp', '.cu')):
            tests |= tests_of(tree.text(path))
    return problems_of(tree.text(TABLE), tests)


def self_test():
    good = ''.join(f'| {report} | what | `A.B`, why |\n' for report in REPORTS)
    tests = tests_of('TEST(A, B) {}\nTEST_F(C,\n       D) {')
    samples = [
        (good, False),
        (good.replace('`A.B`', '`C.D`', 1), False),
        (good.replace('`A.B`', '`A.C`', 1), True),
        (good.replace('`A.B`, why', ' ', 1), True),
        (good.replace('| H07 | what | `A.B`, why |\n', ''), True),
        (good + '| H38 | what | `A.B` |\n', True),
    ]
    return [f'sample {i}: {"" if bad else "not "}expected to complain'
            for i, (text, bad) in enumerate(samples) if bool(problems_of(text, tests)) != bad]
