#!/usr/bin/env python3
"""Usage: test_page.py TREERING

The pages of `treering explain --html`, played in a headless Chromium: their own state says that every rank
holds the complete chunks at the end and not before; a page with a damaged schedule must not say so. TAP.
"""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser
from tap import Tap

ROOT = 1
ROOTED = ('broadcast', 'reduce', 'gather', 'scatter')
PLAYED = (
    [('all_reduce', algo, n) for algo in ('ring', 'tree', 'two_shot', 'halving_doubling')
     for n in (3, 4, 5)] +
    [('all_reduce', 'one_shot', 3), ('all_reduce', 'recursive_doubling', 4),
     ('all_reduce', 'ring', 2), ('all_reduce', 'ring', 16)] +
    [(op, 'ring', n) for op in ('all_gather', 'reduce_scatter', 'broadcast') for n in (3, 4)] +
    [(op, algo, 5) for op, algo in (
        ('all_gather', 'ring'), ('all_gather', 'bruck'), ('all_gather', 'direct'),
        ('reduce_scatter', 'ring'), ('reduce_scatter', 'direct'),
        ('broadcast', 'ring'), ('broadcast', 'tree'), ('broadcast', 'binomial'),
        ('broadcast', 'direct'), ('reduce', 'tree'), ('reduce', 'chain'), ('gather', 'binomial'),
        ('scatter', 'binomial'), ('all_to_all', 'bruck'), ('all_to_all', 'pairwise'),
        ('scan', 'chain'), ('exscan', 'chain'), ('barrier', 'dissemination'))])
# Message times, by hand.
STEPS = {
    ('all_reduce', 'ring'): lambda n: 2 * (n - 1),
    ('all_reduce', 'two_shot'): lambda n: 2,
    ('all_reduce', 'one_shot'): lambda n: 1,
    ('all_gather', 'ring'): lambda n: n - 1,
    ('reduce_scatter', 'ring'): lambda n: n - 1,
    ('broadcast', 'ring'): lambda n: n - 1,
    ('broadcast', 'direct'): lambda n: 1,
    ('all_to_all', 'pairwise'): lambda n: 1,
}
SCHEDULE = re.compile(r'(<script type="application/json" id="schedule">)(.*?)(</script>)', re.S)


def promised(op, n, rank, chunk):
    """The ranks whose inputs chunk `chunk` of rank's result consists of; None: nothing is promised."""
    everyone = list(range(n))
    return {
        'all_reduce': everyone,
        'barrier': everyone,
        'reduce': everyone if rank == ROOT else None,
        'reduce_scatter': everyone if rank == chunk else None,
        'broadcast': [ROOT],
        'all_gather': [chunk],
        'gather': [chunk] if rank == ROOT else None,
        'scatter': [ROOT] if rank == chunk else None,
        'all_to_all': [chunk],
        'scan': everyone[:rank + 1],
        'exscan': everyone[:rank] or None,
    }[op]


def holds_all(op, n, state):
    return all(promised(op, n, r, c) in (None, have)
               for r, chunks in enumerate(state) for c, have in enumerate(chunks))


class Pages:
    def __init__(self, treering, folder):
        self.treering = treering
        self.folder = folder

    def make(self, op, algo, n):
        path = os.path.join(self.folder, f'{op}-{algo}-{n}.html')
        root = ['--root', str(ROOT)] if op in ROOTED else []
        subprocess.run([self.treering, 'explain', op, '--algo', algo, '-n', str(n), '--html', path] + root,
                       check=True, stdout=subprocess.DEVNULL)
        return path

    def damage(self, path, change):
        """A copy of the page whose schedule `change` has been at."""
        with open(path, encoding='utf-8') as file:
            text = file.read()
        data = json.loads(SCHEDULE.search(text).group(2))
        change(data['schedule'])
        damaged = os.path.join(self.folder, 'damaged.html')
        with open(damaged, 'w', encoding='utf-8') as file:
            file.write(SCHEDULE.sub(lambda m: m.group(1) + json.dumps(data) + m.group(3), text))
        return damaged


def play(browser, path):
    browser.open(f'file://{path}#test')
    return json.loads(browser.evaluate('document.getElementById("state").textContent'))


def check_played(tap, browser, pages, op, algo, n):
    report = play(browser, pages.make(op, algo, n))
    trace, problems = report['trace'], []
    if len(trace) != report['steps'] + 1:
        problems.append(f'{len(trace)} positions for {report["steps"]} steps')
    expected = STEPS.get((op, algo))
    if expected and expected(n) != report['steps']:
        problems.append(f'{report["steps"]} steps, not {expected(n)}')
    for at in trace:
        last = at['step'] == report['steps']
        full = holds_all(op, n, at['state'])
        if at['done'] != last or full != last:
            problems.append(f'step {at["step"]} of {report["steps"]}: done {at["done"]}, state {at["state"]}')
    tap.none(f'{op} by {algo}, {n} ranks: complete at the end and not before', problems)


def check_damaged(tap, browser, pages, op, algo, n):
    """Every step of rank 1 is left out once; the page that lacks the first one is opened as a page, the others
    are replayed by the code of the undamaged page."""
    path, finished = pages.make(op, algo, n), []
    last = play(browser, pages.damage(path, lambda schedule: schedule[1].pop(0)))['trace'][-1]
    if last['done'] or not last['status'].startswith(('Stuck', 'Wrong')):
        finished.append(f'without step 0: {last["status"]}')
    browser.open(f'file://{path}')
    done = browser.evaluate('''player.replay.data.schedule[1].map((_, left_out) => {
        const data = structuredClone(player.replay.data);
        data.schedule[1].splice(left_out, 1);
        const replay = new Replay(data);
        replay.goto(replay.steps);
        return replay.done(); })''')
    finished += [f'without step {i}: done' for i, d in enumerate(done) if d]
    tap.check(f'{op} by {algo}, {n} ranks: no step can be missing ({len(done)} tried)', done and not finished,
              finished)


def check_double(tap, browser, pages):
    """A fold that takes its own input twice hears of every rank, and is still wrong."""
    def change(schedule):
        step = next(s for s in schedule[2] if s['verb'] == 'recv_reduce_copy_send')
        step['in'].append(copy.deepcopy(next(o for o in step['in'] if o['space'] == 'in')))
    report = play(browser, pages.damage(pages.make('all_reduce', 'ring', 4), change))
    last = report['trace'][-1]
    tap.check('an input folded twice is not complete',
              not last['done'] and last['state'][0][2] == [0, 1, 2, 2, 3], str(last))


def check_words(tap, browser, pages):
    trace = play(browser, pages.make('all_reduce', 'ring', 4))['trace']
    wanted = {0: 'sends its own chunk 0 to rank 2',
              1: 'receives chunk 3 from rank 0, adds its own, passes it on to rank 2',
              3: 'receives chunk 1 from rank 0, adds its own, keeps the sum (complete now), sends it to rank 2',
              6: 'receives chunk 2 from rank 0, keeps it'}
    tap.none('the table says in words what rank 1 of a ring does',
             [f'step {s}: {trace[s]["words"]}' for s, text in wanted.items() if text not in trace[s]['words']])


def check_colours(tap, browser, pages):
    browser.open(f'file://{pages.make("all_reduce", "ring", 4)}#step=6')
    colours = browser.evaluate(
        'player.view.cards.map((card) => card.cells.map((c) => getComputedStyle(c.whole).fill))')
    tap.check('each chunk has its colour, the same on every rank',
              len(set(colours[0])) == 4 and all(c == colours[0] for c in colours), str(colours))


def check_controls(tap, browser, pages):
    path, where = pages.make('all_reduce', 'ring', 3), '[treering.step, treering.done]'
    reduce_motion = [{'name': 'prefers-reduced-motion', 'value': 'reduce'}]
    browser.command('Emulation.setEmulatedMedia', features=reduce_motion)
    browser.open(f'file://{path}')
    seen = []
    for key in ('ArrowRight', 'ArrowRight', 'ArrowLeft', 'End', 'ArrowRight', 'Home', 'ArrowLeft'):
        browser.press(key)
        seen.append(browser.evaluate(where))
    tap.check('the arrow keys, Home and End move', seen == [
        [1, False], [2, False], [1, False], [4, True], [4, True], [0, False], [0, False]], str(seen))
    browser.evaluate('slider.value = 2.5; slider.dispatchEvent(new Event("input"))')
    half = browser.evaluate('[treering.step, document.querySelectorAll(".pill").length, slider.value]')
    tap.check('the slider scrubs between steps, with messages under way', half == [2, 3, '2.5'], str(half))
    browser.command('Emulation.setEmulatedMedia', features=[])
    browser.open(f'file://{path}')
    browser.evaluate('speed.value = "4"')
    browser.press(' ', ' ')
    label = browser.evaluate('play.getAttribute("aria-label")')
    end = browser.evaluate('''new Promise((done) => {
        const end = performance.now() + 10000;
        const over = () => treering.done && play.getAttribute("aria-label") == "Play";
        const look = () => over() || performance.now() > end
            ? done([treering.done, play.getAttribute("aria-label")]) : setTimeout(look, 20);
        look(); })''')
    tap.check('space plays to the end', label == 'Pause' and end == [True, 'Play'], f'{label}, {end}')


def check_layout(tap, browser, pages):
    """No two ranks overlap and none is cut off, on a projector and on a phone."""
    look = '''(() => {
        const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
        return [box(stage), [...document.querySelectorAll(".paper")].map(box),
                document.documentElement.scrollWidth]; })()'''
    problems = []
    for op, algo, n in (('all_reduce', 'ring', 4), ('all_reduce', 'ring', 8), ('all_reduce', 'tree', 7),
                        ('broadcast', 'binomial', 8), ('all_reduce', 'ring', 16)):
        path = pages.make(op, algo, n)
        for width, height in ((1280, 800), (390, 844)):
            browser.size(width, height)
            browser.open(f'file://{path}')
            stage, cards, page_width = browser.evaluate(look)
            name = f'{op} by {algo}, {n} ranks, {width}x{height}'
            if len(cards) != n:
                problems.append(f'{name}: {len(cards)} cards')
            if page_width > width:
                problems.append(f'{name}: the page is {page_width} wide')
            for i, (left, top, right, bottom) in enumerate(cards):
                if left < stage[0] or top < stage[1] or right > stage[2] or bottom > stage[3]:
                    problems.append(f'{name}: rank {i} is cut off')
                problems += [f'{name}: ranks {j} and {i} overlap' for j, (l, t, r, b) in enumerate(cards[:i])
                             if left < r and l < right and top < b and t < bottom]
    tap.none('ranks neither overlap nor are cut off', problems)


def main(treering):
    tap = Tap()
    program = Browser.find()
    if program is None:
        tap.skip('pages of treering explain', 'no chromium on this machine (Debian: apt install chromium)')
        tap.done()
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        pages = Pages(treering, folder)
        browser.size(1280, 800)
        for case in PLAYED:
            check_played(tap, browser, pages, *case)
        for case in (('all_reduce', 'ring', 3), ('all_reduce', 'tree', 3), ('all_reduce', 'two_shot', 3),
                     ('all_reduce', 'halving_doubling', 4), ('all_gather', 'ring', 4),
                     ('broadcast', 'binomial', 4)):
            check_damaged(tap, browser, pages, *case)
        check_double(tap, browser, pages)
        check_words(tap, browser, pages)
        check_colours(tap, browser, pages)
        check_controls(tap, browser, pages)
        check_layout(tap, browser, pages)
        tap.none('no page fails or asks the network', browser.problems)
    tap.done()


main(*sys.argv[1:])
