"""What the documents promise is there: links, commands, environment variables, three hops."""
import os
import re

from tree import strip_comments

LINK = re.compile(r'(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)')
FENCE = re.compile(r'^```(\w*)\n(.*?)^```', re.M | re.S)
VARIABLE = re.compile(r'"(TR_[A-Z][A-Z0-9_]*)"')


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r'[`*]', '', heading.strip().lower())
    return re.sub(r'[^\w\- ]', '', text).replace(' ', '-')


def broken_links(path, text, exists, read):
    """Relative links of a Markdown text whose file or heading does not exist."""
    out = []
    body = FENCE.sub('', text)
    for target in LINK.findall(body):
        if re.match(r'[a-z]+:', target):
            continue
        name, _, anchor = target.partition('#')
        file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not exists(file):
            out.append(f'{path}: link to {target}: no such file')
        elif anchor and file.endswith('.md'):
            headings = re.findall(r'^#+ (.*)$', FENCE.sub('', text if file == path else read(file)), re.M)
            if anchor not in [slug(h) for h in headings]:
                out.append(f'{path}: link to {target}: no such heading')
    return out


def check_links(tree):
    def exists(file):
        return os.path.exists(os.path.join(tree.root, file))

    return [p for path in tree.paths if path.endswith('.md')
            for p in broken_links(path, tree.text(path), exists, tree.text)]


def missing_commands(path, text, exists, subcommands, usage):
    """Shell lines of the code blocks of `text` that start something the repository does not have.

    subcommands: those of `treering`. usage(script): its text, in which each --option must occur.
    """
    out = []
    for language, block in FENCE.findall(text):
        if language not in ('sh', 'bash', 'console'):
            continue
        for line in block.splitlines():
            words = line.split('#')[0].removeprefix('$ ').split()
            while words and (words[0] == 'sudo' or re.fullmatch(r'[A-Z_]+=\S*', words[0])):
                words.pop(0)
            if not words:
                continue
            program = os.path.normpath(words[0])
            if words[0].startswith(('./', 'tools/', 'tests/')) and not program.startswith('build'):
                if not exists(program):
                    out.append(f'{path}: "{line.strip()}": no such file')
                    continue
                for option in words[1:]:
                    if option.startswith('--') and option not in usage(program):
                        out.append(f'{path}: "{line.strip()}": {program} knows no {option}')
            elif os.path.basename(program) == 'treering' and len(words) > 1:
                if words[1] not in subcommands and not words[1].startswith('-'):
                    out.append(f'{path}: "{line.strip()}": treering has no command {words[1]}')
    return out


def check_commands(tree):
    def exists(file):
        return os.access(os.path.join(tree.root, file), os.X_OK)

    cli = '\n'.join(strip_comments(tree.text(p)) for p in tree.under('src/cli/'))
    subcommands = set(re.findall(r'"([a-z]+)"', cli))
    return [p for path in ('README.md', 'CONTRIBUTING.md') if path in tree.paths
            for p in missing_commands(path, tree.text(path), exists, subcommands, tree.text)]


def unknown_variables(path, text, table):
    """TR_ variables that a source names, or any that getenv reads, outside the table of config.cpp."""
    code = strip_comments(text)
    names = set(VARIABLE.findall(code)) | set(re.findall(r'getenv\(\s*"(TR_\w+)"', code))
    return [f'{path}: {name} is not in the table of src/core/config.cpp'
            for name in sorted(names) if name not in table]


def check_variables(tree):
    table = set(VARIABLE.findall(tree.text('src/core/config.cpp')))
    if not table:
        return ['src/core/config.cpp has no table of variables']
    out = [p for path in tree.code('.cpp', '.hpp', '.c')
           if path.startswith(('src/', 'transports/', 'algos/'))
           for p in unknown_variables(path, tree.text(path), table)]
    if 'README.md' in tree.paths:
        out += [f'README.md: {name} is not explained' for name in sorted(table)
                if f'`{name}`' not in tree.text('README.md')]
    return out


def unlisted_algorithms(readme, registry):
    """Rows of the registry that the README's table of operations does not have."""
    out = []
    for name, collective in re.findall(r'\b(?:row|on_hosts)\("(\w+)",\s*C::k(\w+)', strip_comments(registry)):
        call = 'tr' + re.sub('([A-Z])', r'_\1', collective).lower()
        rows = re.findall(rf'^\|[^|]*`{call}`[^|]*\|(.*)\|$', readme, re.M)
        if name != 'local' and not any(re.search(rf'\b{name}\b', row) for row in rows):
            out.append(f'README.md: the table of operations lacks {name} of {call}')
    return out


def check_algorithms(tree):
    registry = tree.text('algos/registry.cpp')
    if 'row("ring"' not in registry:
        return ['algos/registry.cpp has no row "ring": has its form changed?']
    return unlisted_algorithms(tree.text('README.md'), registry)


# The promise of the README: from the public call to the ring in three hops, each found with grep.
PUBLIC = 'include/treering/treering.h'
COLLECTIVES = 'src/comm/collectives.cpp'
RING = 'algos/ring.hpp'


def broken_hops(name, text, paths):
    """The hops of one collective ("all_reduce") that a reader would not find."""
    out = []
    if not re.search(rf'\btr_{name}\(', text(PUBLIC)):
        out.append(f'{PUBLIC} does not declare tr_{name}')
    shims = [p for p in paths if p.startswith('src/api/') and p.endswith('.cpp')
             and re.search(rf'^tr_result_t tr_{name}\(', strip_comments(text(p)), re.M)]
    if len(shims) != 1:
        out.append(f'tr_{name} is defined in {len(shims)} files of src/api, not in one')
    elif not re.search(rf'(?:\.|->|::|\b){name}\(', strip_comments(text(shims[0])).replace(f'tr_{name}(', '')):
        out.append(f'{shims[0]}: tr_{name} does not call {name}()')
    if COLLECTIVES not in paths or not re.search(rf'\b{name}\(', strip_comments(text(COLLECTIVES))):
        out.append(f'{COLLECTIVES} does not define {name}()')
    elif 'ring.hpp' not in text(COLLECTIVES):
        out.append(f'{COLLECTIVES} does not name {RING}')
    if not re.search(rf'^TR_HD void {name}\(P& p\)', text(RING), re.M):
        out.append(f'{RING} has no {name}')
    return out


def check_hops(tree):
    return [p for name in ('all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'reduce')
            for p in broken_hops(name, tree.text, tree.paths)]


def self_test():
    out = []

    def expect(name, problems, bad):
        if bool(problems) != bad:
            out.append(f'{name}: {"no complaint" if bad else problems}')

    files = {'A.md': '# One two\n', 'check': '--long', 'tools/x': ''}
    links = [('[a](A.md)', False), ('[a](A.md#one-two)', False), ('[a](A.md#three)', True), ('[a](B.md)', True),
             ('[a](https://example.org/B.md)', False), ('```sh\n[a](B.md)\n```\n', False)]
    for text, bad in links:
        expect(text, broken_links('README.md', text, files.__contains__, files.get), bad)
    commands = [('./check --long', False), ('./check --short', True), ('./demi', True), ('tools/x  # y', False),
                ('treering perf all_reduce', False), ('treering pref all_reduce', True),
                ('TR_LOG=info treering env', False), ('build/demo/src/cli/treering nothing', True)]
    for text, bad in commands:
        expect(text, missing_commands('README.md', f'```sh\n{text}\n```\n', files.__contains__,
                                      {'perf', 'env'}, files.get), bad)
    for text, bad in [('getenv("TR_KNOWN")', False), ('getenv("TR_OTHER")', True), ('f("TR_OTHER")', True),
                      ('// "TR_OTHER"', False)]:
        expect(text, unknown_variables('src/a.cpp', text, {'TR_KNOWN'}), bad)
    table = '| `tr_all_reduce` | ring |\n'
    for row, bad in [('row("ring", C::kAllReduce,', False), ('row("tree", C::kAllReduce,', True),
                     ('row("ring", C::kReduce,', True), ('on_hosts("rings", C::kAllReduce,', True)]:
        expect(row, unlisted_algorithms(table, row), bad)
    hops = {PUBLIC: 'TR_API tr_result_t tr_x(int);', 'src/api/a.cpp': 'tr_result_t tr_x(int i) { return c->x(i); }',
            COLLECTIVES: '// algos/ring.hpp\nStatus Communicator::x(int i) {}', RING: 'TR_HD void x(P& p) {'}
    expect('three hops', broken_hops('x', hops.get, hops), False)
    for file in hops:
        expect(f'three hops without {file}', broken_hops('x', {**hops, file: ''}.get, hops), True)
    return out
