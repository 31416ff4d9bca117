"""The files of the repository, as the structure rules see them."""
import os
import subprocess

CODE = ('.hpp', '.h', '.cpp', '.c', '.cu', '.cuh')
HEADERS = ('.hpp', '.h', '.cuh')


class Tree:
    """paths: every file that git tracks or would add, relative to the root, sorted."""

    def __init__(self, root):
        self.root = root
        listing = subprocess.run(['git', '-C', root, 'ls-files', '-z', '-co', '--exclude-standard'],
                                 capture_output=True, check=False)
        if listing.returncode == 0:
            names = listing.stdout.decode().split('\0')
        else:  # no git, or a tree that belongs to another user
            names = self._walk()
        self.paths = sorted({n for n in names if n and os.path.isfile(os.path.join(root, n))})
        self._texts = {}

    def _walk(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in ('.git', '.venv', '__pycache__')
                          and not f.startswith('build')]
            for name in files:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def text(self, path):
        """The file's text; '' for a binary file."""
        if path not in self._texts:
            with open(os.path.join(self.root, path), 'rb') as file:
                data = file.read()
            self._texts[path] = '' if b'\0' in data else data.decode('utf-8', 'replace')
        return self._texts[path]

    def code(self, *suffixes):
        return [p for p in self.paths if p.endswith(suffixes or CODE)]

    def under(self, *folders):
        return [p for p in self.paths if p.startswith(folders)]


def strip_comments(text, strings=False):
    """C++ text without its comments and, if asked, its strings' contents; line numbers stay."""
    out = []
    i = 0
    while i < len(text):
        if text.startswith('//', i):
            end = text.find('\n', i)
            i = len(text) if end < 0 else end
        elif text.startswith('/*', i):
            end = text.find('*/', i + 2)
            end = len(text) if end < 0 else end + 2
            out.append('\n' * text.count('\n', i, end))
            i = end
        elif text[i] in '"\'' and not (i and text[i] == "'" and text[i - 1].isalnum()):
            quote, start = text[i], i  # (a ' after a digit separates digits: 1'000)
            i += 1
            while i < len(text) and text[i] != quote and text[i] != '\n':
                i += 2 if text[i] == '\\' else 1
            i += 1
            out.append(quote + quote if strings else text[start:i])
        else:
            out.append(text[i])
            i += 1
    return ''.join(out)
