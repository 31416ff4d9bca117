#!/usr/bin/env python3
"""Usage: TR_TEST_LONG=1 test_chroot.py ROOT

A new Debian 12 with nothing installed (debootstrap, a chroot in its own mount and process name space)
takes a clean clone and passes `./check --no-sanitizers`. Needs root, a network and some 4 GB in TMPDIR;
takes about 20 minutes. TAP.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import Tap

NAME = './check --no-sanitizers in a new Debian 12'


# A source of Debian 12 itself: deb822 or one line. Others' repositories are not for the chroot.
URI = re.compile(r'^URIs:\s+(\S+)\s+^Suites:(?=.*\sbookworm(?:\s|$))|^deb(?: \[[^]]*\])?\s+(\S+)\s+bookworm\s', re.M)


def sources():
    """{file: URI} of apt's sources of Debian 12 on this machine."""
    found = {}
    for path in glob.glob('/etc/apt/sources.list') + glob.glob('/etc/apt/sources.list.d/*'):
        with open(path, encoding='utf-8') as file:
            match = URI.search(file.read())
        if match:
            found[path] = match.group(1) or match.group(2)
    return found


def mirror():
    """Where this machine's own apt gets Debian 12 from."""
    return next(iter(sources().values()), 'http://deb.debian.org/debian')


def why_not():
    if not os.environ.get('TR_TEST_LONG'):
        return 'takes long: ./check --long runs it'
    if os.geteuid() != 0:
        return 'needs root'
    for program in ('debootstrap', 'unshare', 'git'):
        if shutil.which(program) is None:
            return f'needs {program}'
    return None


def copy_network_settings(chroot):
    """Proxies, mirrors and certificates: how this machine reaches Debian and PyPI."""
    shutil.copy('/etc/resolv.conf', f'{chroot}/etc/resolv.conf')
    for path in [*sources(), '/etc/pip.conf', *glob.glob('/etc/apt/apt.conf.d/*prox*'),
                 *glob.glob('/etc/apt/auth.conf.d/*'), *glob.glob('/usr/local/share/ca-certificates/*.crt')]:
        if os.path.isfile(path):
            os.makedirs(os.path.dirname(chroot + path), exist_ok=True)
            shutil.copy(path, chroot + path)
    certificates = '/etc/ssl/certs/ca-certificates.crt'
    if os.path.isfile(certificates):
        shutil.copy(certificates, chroot + certificates)


SCRIPT = '''set -e
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/tmp"
exec chroot "$1" /bin/sh -c 'cd /treering && exec ./check --no-sanitizers < /dev/null'
'''


def main(root):
    tap = Tap()
    reason = why_not()
    if reason:
        tap.skip(NAME, reason)
        tap.done()
    work = tempfile.mkdtemp(prefix='treering-chroot-')
    chroot = f'{work}/bookworm'
    try:
        made = subprocess.run(['debootstrap', '--variant=minbase', '--include=ca-certificates', 'bookworm', chroot,
                               mirror()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if not tap.check('debootstrap', made.returncode == 0, made.stdout.splitlines()[-20:]):
            tap.done()
        copy_network_settings(chroot)
        cloned = subprocess.run(['git', 'clone', '-q', root, f'{chroot}/treering'], capture_output=True, text=True,
                                check=False)
        tap.check('git clone', cloned.returncode == 0, cloned.stderr)
        # The clone's tests must not be the long ones: one of them is this one.
        kept = ('http_proxy', 'https_proxy', 'no_proxy', 'TERM', 'LANG')
        env = {k: v for k, v in os.environ.items() if k.lower() in kept or k.startswith('PIP_') or k in kept}
        env |= {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': '/root', 'CI': 'true'}
        ran = subprocess.run(['unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', SCRIPT, 'sh', chroot],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
        last = ran.stdout.rstrip().split('\n')[-1]
        tap.check(NAME, ran.returncode == 0 and re.fullmatch(r'\d+ passed, 0 failed, \d+ skipped', last) is not None,
                  ran.stdout.splitlines()[-150:])
    finally:
        # The mounts went with their name space; should one be left, this does not follow it.
        subprocess.run(['rm', '-rf', '--one-file-system', work], check=False)
    tap.done()


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
