"""A headless Chromium that is told what to do through the DevTools protocol, over a pipe.

    with Browser(Browser.find()) as page:
        page.open('file:///tmp/x.html')
        page.evaluate('document.title')
"""
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')
DEADLINE_S = 60


class BrowserError(Exception):
    pass


class Browser:
    @staticmethod
    def find():
        """The path of a Chromium, or None."""
        return next(filter(None, map(shutil.which, PROGRAMS)), None)

    def __init__(self, program):
        self.problems = []  # exceptions and network requests of the pages, as text
        self._profile = tempfile.mkdtemp(prefix='treering-chromium-')
        # The browser reads commands from descriptor 3 and answers on 4.
        theirs_in, self._out = self._pipe()
        self._in, theirs_out = self._pipe()
        def place():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)
        self._process = subprocess.Popen(
            [program, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
             '--hide-scrollbars', '--no-first-run', '--remote-debugging-pipe',
             f'--user-data-dir={self._profile}', 'about:blank'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=place, close_fds=False, start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b''
        self._number = 0
        self._session = None
        self._loaded = set()  # loaders of pages that have been loaded

    @staticmethod
    def _pipe():
        """Both ends above the numbers that the browser wants."""
        ends = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
        for end in ends:
            os.close(end)
        return high

    def __enter__(self):
        target = next(t for t in self.command('Target.getTargets')['targetInfos']
                      if t['type'] == 'page')
        self._session = self.command('Target.attachToTarget', targetId=target['targetId'],
                                     flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Network'):
            self.command(domain + '.enable')
        self.command('Page.setLifecycleEventsEnabled', enabled=True)
        return self

    def __exit__(self, *_):
        os.close(self._out)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        # Its helpers may outlive it for a moment, and write to the profile.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._in)
        for _ in range(50):
            shutil.rmtree(self._profile, ignore_errors=True)
            if not os.path.exists(self._profile):
                break
            time.sleep(0.1)

    def command(self, method, **parameters):
        self._number += 1
        message = {'id': self._number, 'method': method, 'params': parameters}
        if self._session:
            message['sessionId'] = self._session
        os.write(self._out, json.dumps(message).encode() + b'\0')
        answer = self._wait(lambda m: m.get('id') == self._number)
        if 'error' in answer:
            raise BrowserError(f'{method}: {answer["error"]["message"]}')
        return answer['result']

    def open(self, url):
        """Loads a page; returns when its scripts have run."""
        # A URL that differs from the last one in its fragment only would not be loaded again.
        self._number += 1
        path, _, fragment = url.partition('#')
        loader = self.command('Page.navigate', url=f'{path}?{self._number}#{fragment}')['loaderId']
        self._wait(lambda m: loader in self._loaded)

    def evaluate(self, expression):
        result = self.command('Runtime.evaluate', expression=expression, returnByValue=True,
                              awaitPromise=True)
        if 'exceptionDetails' in result:
            details = result['exceptionDetails']
            raise BrowserError(details.get('exception', {}).get('description', details['text']))
        return result['result'].get('value')

    def press(self, key, text=''):
        for kind in ('keyDown', 'keyUp'):
            down = {'text': text} if text and kind == 'keyDown' else {}
            self.command('Input.dispatchKeyEvent', type=kind, key=key, **down)

    def size(self, width, height):
        self.command('Emulation.setDeviceMetricsOverride', width=width, height=height,
                     deviceScaleFactor=1, mobile=False)
        # The page lays itself out anew before its next frame.
        self.evaluate('new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))'
                      '.then(() => 0)')

    def _wait(self, wanted):
        if wanted({}):
            return {}
        end = time.monotonic() + DEADLINE_S
        while True:
            while b'\0' in self._buffer:
                text, self._buffer = self._buffer.split(b'\0', 1)
                message = json.loads(text)
                self._note(message)
                if wanted(message):
                    return message
            if not select.select([self._in], [], [], max(0, end - time.monotonic()))[0]:
                raise BrowserError(f'no answer within {DEADLINE_S} s')
            data = os.read(self._in, 1 << 16)
            if not data:
                raise BrowserError('the browser has ended')
            self._buffer += data

    def _note(self, message):
        method, parameters = message.get('method'), message.get('params', {})
        if method == 'Runtime.exceptionThrown':
            details = parameters['exceptionDetails']
            self.problems.append(details.get('exception', {}).get('description', details['text']))
        if method == 'Page.lifecycleEvent' and parameters['name'] == 'load':
            self._loaded.add(parameters['loaderId'])
        if method == 'Network.requestWillBeSent':
            url = parameters['request']['url']
            if not url.startswith(('file:', 'about:', 'data:')):
                self.problems.append(f'the page asks the network for {url}')
