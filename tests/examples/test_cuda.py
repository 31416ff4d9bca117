"""The examples on GPUs, which are the emulator's: as on the host, number by number where the order of sums is the same.

    test_cuda.py FOLDER_OF_PROGRAMS FOLDER_OF_PROGRAMS_WITH_THE_EMULATOR
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import Run, find, params_hash  # noqa: E402
from tap import Tap  # noqa: E402

HOST, CUDA = sys.argv[1:]
tap = Tap()


def on_host(size, name, *args, **settings):
    return Run(size, os.path.join(HOST, name), *args, '--device', 'host', **settings)


def on_cuda(size, name, *args, **settings):
    return Run(size, os.path.join(CUDA, name), *args, '--device', 'cuda', **settings)


# ---- 01, 02, 08 --------------------------------------------------------------------------------------
for n in (1, 2):
    run = on_cuda(n, '01_hello_ranks')
    tap.check(f'hello from {n} ranks', run.ok and run.all.count('hello from rank') == n
              and f'all {n} of us are here' in run.out, run.why())
    run, host = on_cuda(n, '02_collectives'), on_host(n, '02_collectives')
    tap.check(f'collectives over {n} ranks: as on the host', run.ok and host.ok and run.out == host.out, host.out,
              run.why())
run = on_cuda(2, '08_bandwidth', '0.0625')
tap.check('bandwidth: sizes up to 64 KiB', run.ok and re.search(r'^ +65536( +[\d.]+){3}$', run.out, re.M), run.why())

run = on_cuda(1, '01_hello_ranks', CUDASIM_DEVICES='0')
tap.check('without a GPU that is said', run.codes == [1] and 'looking for a GPU: ' in run.errors[0]
          and 'no CUDA-capable device' in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device', 'tpu')
tap.check('an unknown device is refused', run.codes == [1] and "no device 'tpu': host, cuda" in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device')
tap.check('so is none', run.codes == [1] and '--device has a value' in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device', 'cuda', CUDA_VISIBLE_DEVICES='')
tap.check('the program as it is installed says why it has no GPU', run.codes == [1] and 'a GPU' in run.errors[0],
          run.why())

# ---- train_mlp ---------------------------------------------------------------------------------------
TRAINER = 'train_mlp'
if not os.path.exists(os.path.join(CUDA, TRAINER)):
    tap.skip('the trainer', 'it was not built: zlib or CLI11 is missing')
    tap.done()

# With a fixed order of all sums a GPU computes the host's bits. (A real one has its own exp and log.) Ranks share it.
SHARED = {'TR_CUDA_CHANNELS': '1', 'CUDASIM_SMS': '12'}
small = ['--gemm', 'ref', '--hidden', '32,32', '--steps', '4', '--bucket-mb', '0.01', '--first-bucket-mb', '0.004']
for n, args in ((1, []), (2, []), (2, ['--overlap', 'off']), (2, ['--tp', '2']), (2, ['--pp', '2', '--micro-batch', '32']),
                (2, ['--zero', '1']), (2, ['--zero', '3'])):
    run, host = on_cuda(n, TRAINER, *small, *args, **SHARED), on_host(n, TRAINER, *small, *args)
    loss = find(r' loss ([\d.]+)', run.out)
    tap.check(f'{n} ranks {" ".join(args)}: the loss and the parameters are the host\'s, bit for bit',
              params_hash(run) is not None and params_hash(run) == params_hash(host)
              and loss == find(r' loss ([\d.]+)', host.out), host.why(), run.why())
run = on_cuda(2, TRAINER, *small, '--verify', '--reduce-order', 'rank', **SHARED)
tap.check('--verify repeats the training on the same GPU', run.ok
          and 'against a serial run: every loss is equal bit for bit' in run.out, run.why())
run = on_cuda(1, TRAINER, *small, '--backend', 'threads', '--dp', '2', CUDASIM_SMS='12')
tap.check('ranks that are threads share a GPU', params_hash(run) is not None and 'cuda, gemm ref' in run.out, run.why())

args = ['--epochs', '3']
run, host = on_cuda(2, TRAINER, *args, **SHARED), on_host(2, TRAINER, *args)
LINE = r'^epoch (\d+)/3 .* loss ([\d.]+)  acc ([\d.]+)  test ([\d.]+)'
lines = [[float(x) for x in line] for line in re.findall(LINE, run.out, re.M)]
expected = [[float(x) for x in line] for line in re.findall(LINE, host.out, re.M)]
tap.check('cuBLAS is used', 'cuda, gemm cublas' in run.out, run.why())
tap.check("with it the loss falls, and is the host's within 1e-4", len(lines) == len(expected) == 3
          and lines[0][1] > lines[1][1] > lines[2][1] and lines[2][3] > 0.8
          and all(abs(a[1] - b[1]) < 1e-4 for a, b in zip(lines, expected)), host.why(), run.why())
run = on_cuda(1, TRAINER, '--gemm', 'openblas')
tap.check('OpenBLAS is not for GPUs', run.codes == [1] and "no matrix products named 'openblas' on a GPU" in run.errors[0],
          run.why())

with tempfile.TemporaryDirectory() as folder:
    trace = os.path.join(folder, 'trace.json')
    run = on_cuda(2, TRAINER, *small, '--trace', trace, **SHARED)
    tap.check('a trace is gathered', run.ok and os.path.getsize(trace) > 1000, run.why())
    saved = os.path.join(folder, 'saved')
    first, rest = on_cuda(2, TRAINER, *small, '--save', saved, **SHARED), on_host(1, TRAINER, *small, '--load', saved)
    tap.check('what a GPU saved the host loads, in another layout', first.ok and rest.ok
              and params_hash(first) is not None and 'goes on after step 4' in rest.out, first.why(), rest.why())
tap.done()
