"""Rules on single files: length, forbidden words, what our code must not do."""
import os
import re

from tree import CODE, strip_comments

MAX_LINES = 450  # "about 400"
OURS = ('include/', 'src/', 'transports/', 'algos/')
ATOMIC_CALL = re.compile(r'(?:\.|->)(load|store|exchange|fetch_add|fetch_sub|fetch_or|fetch_and|'
                         r'compare_exchange_weak|compare_exchange_strong|test_and_set)\s*\(')
# A path of the machine that somebody wrote the file on says nothing to its reader.
HOME_PATH = re.compile(r'(?<![\w.])/(?:work|home|root|Users)/[\w.]')


def long_lines(path, text):
    if not path.endswith(('.hpp', '.h', '.cpp', '.c', '.cuh', '.cu', '.py', '.sh', '.build')):
        return []
    lines = text.count('\n')
    return [f'{path}: {lines} lines; at most {MAX_LINES}, cut it in two'] if lines > MAX_LINES else []


def home_paths(path, text):
    return [f'{path}:{text.count(chr(10), 0, m.start()) + 1}: absolute path of one machine: '
            f'{text[m.start():m.end() + 20].splitlines()[0]}' for m in HOME_PATH.finditer(text)]


def argument(code, start):
    """The text between the parenthesis that ends at `start` and its partner."""
    depth, i = 1, start
    while i < len(code) and depth:
        depth += {'(': 1, ')': -1}.get(code[i], 0)
        i += 1
    return code[start:i - 1]


def forbidden_code(path, text):
    """No throw, no volatile, a memory order at each atomic, #pragma once or an include guard."""
    if not path.startswith(OURS) or not path.endswith(CODE):
        return []
    out = []
    code = strip_comments(text, strings=True)

    def at(position):
        return f'{path}:{code.count(chr(10), 0, position) + 1}'

    if not path.startswith('include/'):  # the C++ API throws for those who ask for it, CLI11 wants it
        for match in re.finditer(r'\bthrow\b(?! CLI::)', code):
            out.append(f'{at(match.start())}: throw: our functions answer with Status')
    if os.path.basename(path) != 'ptx.h':
        for match in re.finditer(r'(?<!asm )\bvolatile\b', code):
            out.append(f'{at(match.start())}: volatile: use an atomic with a memory order')
    for match in ATOMIC_CALL.finditer(code):
        inside = argument(code, match.end())
        bare_load = match.group(1) == 'load' and not inside.strip()
        if bare_load or ('std::atomic' in code and 'order' not in inside.lower()):
            out.append(f'{at(match.start())}: {match.group(1)}({inside}) names no memory order')
    # (Highway's -inl headers are included once per instruction set and guard themselves so.)
    if path.endswith(('.hpp', '.h')) and not re.search('#pragma once|#ifndef|defined.HWY_TARGET_TOGGLE', code):
        out.append(f'{path}: neither #pragma once nor an include guard')
    return out


def whitespace(path, text):
    if not path.endswith(('.hpp', '.h', '.cpp', '.c', '.py', '.md', '.build', '.sh')):
        return []
    out = [f'{path}:{i}: trailing space or tab' for i, line in enumerate(text.split('\n'), 1)
           if line != line.rstrip()]
    if text and not text.endswith('\n'):
        out.append(f'{path}: no newline at the end')
    return out


RULES = {
    'files have at most about 400 lines': long_lines,
    'no path of one machine': home_paths,
    'no throw, no volatile, a memory order at each atomic, header guards': forbidden_code,
    'no trailing space, a newline at the end': whitespace,
}


def check(tree, rule):
    return [p for path in tree.paths for p in rule(path, tree.text(path))]


SAMPLES = [
    (long_lines, 'src/a.cpp', 'x;\n' * 451, True),
    (long_lines, 'src/a.cpp', 'x;\n' * 400, False),
    (long_lines, 'examples/data/digits.csv', 'x\n' * 1000, False),
    (home_paths, 'README.md', 'see /ho' + 'me/me/notes.txt', True),
    (home_paths, 'README.md', 'see https://example.org/ho' + 'me/me, ./work/x', False),
    (forbidden_code, 'src/core/a.cpp', 'void f() { throw 1; }', True),
    (forbidden_code, 'src/core/a.cpp', '// we never throw 1', False),
    (forbidden_code, 'src/core/a.cpp', 'const char* s = "throw 1";', False),
    (forbidden_code, 'tests/unit/a.cpp', 'void f() { throw 1; }', False),
    (forbidden_code, 'src/core/a.cpp', 'volatile int x;', True),
    (forbidden_code, 'src/core/a.cpp', 'asm volatile("");', False),
    (forbidden_code, 'src/core/a.cpp', 'std::atomic<int> a; int f() { return a.load(); }', True),
    (forbidden_code, 'src/core/a.cpp', 'std::atomic<int> a; void f() { a.store(g(1)); }', True),
    (forbidden_code, 'src/core/a.cpp', 'std::atomic<int> a; void f() { a.fetch_add(1); }', True),
    (forbidden_code, 'src/core/a.cpp',
     'std::atomic<int> a; void f() { a.store(g(1), std::memory_order_release); }', False),
    (forbidden_code, 'src/core/a.hpp', 'int x;', True),
    (whitespace, 'README.md', 'a \n', True),
    (whitespace, 'README.md', 'a', True),
    (whitespace, 'README.md', 'a\n\nb\n', False),
]


def self_test():
    return [f'{rule.__name__}({path}, {text[:60]!r}) should {"" if bad else "not "}complain'
            for rule, path, text, bad in SAMPLES if bool(rule(path, text)) != bad]
