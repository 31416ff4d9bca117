"""The examples on GPUs, which are the emulator's: as on the host, number by number where the order of sums is the same.

    test_cuda.py FOLDER_OF_PROGRAMS FOLDER_OF_PROGRAMS_WITH_THE_EMULATOR
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import Run, params_hash  # noqa: E402
from tap import Tap  # noqa: E402

HOST, CUDA = sys.argv[1:]
tap = Tap()


def on_host(size, name, *args, **settings):
    return Run(size, os.path.join(HOST, name), *args, '--device', 'host', **settings)


def on_cuda(size, name, *args, **settings):
    return Run(size, os.path.join(CUDA, name), *args, '--device', 'cuda', **settings)


# ---- 01, 02, 03 --------------------------------------------------------------------------------------
for n in (1, 2):
    run = on_cuda(n, '01_hello_ranks')
    tap.check(f'hello from {n} ranks', run.ok and run.all.count('hello from rank') == n
              and f'all {n} of us are here' in run.out, run.why())
    run, host = on_cuda(n, '02_collectives'), on_host(n, '02_collectives')
    tap.check(f'collectives over {n} ranks: as on the host', run.ok and host.ok and run.out == host.out, host.out,
              run.why())
run = on_cuda(2, '03_bandwidth', '0.0625')
tap.check('bandwidth: sizes up to 64 KiB', run.ok and re.search(r'^ +65536( +[\d.]+){3}$', run.out, re.M), run.why())

run = on_cuda(1, '01_hello_ranks', CUDASIM_DEVICES='0')
tap.check('without a GPU that is said', run.codes == [1] and '--device cuda: ' in run.errors[0]
          and 'no CUDA-capable device' in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device', 'tpu')
tap.check('an unknown device is refused', run.codes == [1] and "no device 'tpu': host, cuda" in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device')
tap.check('so is none', run.codes == [1] and '--device has a value' in run.errors[0], run.why())
run = Run(1, os.path.join(HOST, '01_hello_ranks'), '--device', 'cuda', CUDA_VISIBLE_DEVICES='')
tap.check('the program as it is installed says why it has no GPU', run.codes == [1] and '--device cuda' in run.errors[0],
          run.why())

# ---- 05 ----------------------------------------------------------------------------------------------
TRAINER = '05_train_mlp'
if not os.path.exists(os.path.join(CUDA, TRAINER)):
    tap.skip('the trainer', 'it was not built: zlib or CLI11 is missing')
    tap.done()

# With a fixed order of all sums a GPU computes the host's bits. (A real one has its own exp and log.)
small = ['--gemm', 'ref', '--verify', '--epochs', '1', '--bucket-mb', '0.04', '--first-bucket-mb', '0.01']
for n, args in ((1, []), (2, []), (2, ['--overlap', 'off'])):
    run, host = on_cuda(n, TRAINER, *small, *args), on_host(n, TRAINER, *small, *args)
    tap.check(f'{n} ranks {" ".join(args)}: equal to serial, and to the host, bit for bit',
              'equal to serial: bit for bit over 12 steps' in run.out and params_hash(run) is not None
              and params_hash(run) == params_hash(host), host.why(), run.why())

run, host = on_cuda(2, TRAINER, '--epochs', '4'), on_host(2, TRAINER, '--epochs', '4')
LINE = r'^epoch +(\d+)/4  loss ([\d.]+)  train ([\d.]+)  test ([\d.]+)'
lines = [[float(x) for x in line] for line in re.findall(LINE, run.out, re.M)]
expected = [[float(x) for x in line] for line in re.findall(LINE, host.out, re.M)]
tap.check('cuBLAS is used', 'gemm cublas;' in run.out and run.out.splitlines()[1].startswith('on Emulated GPU'), run.why())
tap.check('with it the loss falls', run.ok and len(lines) == 4
          and lines[0][1] > lines[1][1] > lines[2][1] > lines[3][1] and lines[3][3] > 0.85, run.why())
tap.check("the loss is the host's within 1e-4", len(lines) == len(expected) == 4
          and all(abs(a[1] - b[1]) < 1e-4 for a, b in zip(lines, expected)), host.why(), run.why())
run = on_cuda(2, TRAINER, '--verify', '--steps', '5')
tap.check('with cuBLAS: equal to serial', run.ok and 'equal to serial: bit for bit over 5 steps' in run.out, run.why())
run = on_cuda(2, TRAINER, '--gemm', 'openblas')
tap.check('OpenBLAS is not for GPUs', not run.ok and "no GEMM named 'openblas' for Emulated GPU" in run.errors[0]
          and run.errors[0].endswith(': auto, ref, cublas\n'), run.why())
tap.done()
