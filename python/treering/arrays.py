"""What can be sent: anything with the buffer protocol, NumPy arrays, torch CPU tensors, DLPack arrays in host memory.

An array is described where it lies, never copied. What does not fit is refused here, before the library is called.
"""
import functools
import sys

from treering import _core

# Types that the library reduces, and their tr_type_t.
TYPES = {
    'int8': 0, 'uint8': 1, 'int32': 2, 'uint32': 3, 'int64': 4, 'uint64': 5, 'float16': 6, 'bfloat16': 7,
    'float32': 8, 'float64': 9, 'float8_e4m3fn': 10, 'float8_e5m2': 11,
}
BYTES = TYPES['uint8']
SIZES = {'int8': 1, 'uint8': 1, 'int32': 4, 'uint32': 4, 'int64': 8, 'uint64': 8, 'float16': 2, 'bfloat16': 2,
         'float32': 4, 'float64': 8, 'float8_e4m3fn': 1, 'float8_e5m2': 1}
# A type that is another one in disguise: name -> (that one, how many of it, operators that mean the same there).
VIEWS = {
    'bool': ('uint8', 1, {'min', 'max', 'prod', 'band', 'bor', 'bxor'}),
    'complex64': ('float32', 2, {'sum', 'avg'}),
    'complex128': ('float64', 2, {'sum', 'avg'}),
}
# struct's format characters.
FORMATS = {'b': 'int8', 'B': 'uint8', 'c': 'uint8', '?': 'bool', 'h': 'int16', 'H': 'uint16', 'i': 'int32',
           'I': 'uint32', 'e': 'float16', 'f': 'float32', 'd': 'float64', 'Zf': 'complex64', 'Zd': 'complex128'}
DLPACK = {0: 'int', 1: 'uint', 2: 'float', 4: 'bfloat', 5: 'complex', 6: 'bool'}


class Array:
    """Where an array lies. `name`: its type, in NumPy's and torch's words. `owner` keeps the memory alive."""
    __slots__ = ('address', 'count', 'itemsize', 'name', 'owner')

    def __init__(self, address, count, itemsize, name, owner):
        self.address, self.count, self.itemsize, self.name, self.owner = address, count, itemsize, name, owner

    def moved(self):
        """(elements, type) for calls that only move: any type will do, as bytes if need be."""
        code = TYPES.get(self.name)
        return (self.count * self.itemsize, BYTES) if code is None else (self.count, code)

    def reduced(self, op):
        """(elements, type) for the operator of this name, or a TypeError."""
        return self.count * factor_of(self.name, op), code_of(self.name, op)


@functools.lru_cache(maxsize=None)
def code_of(name, op):
    code = TYPES.get(name)
    if code is not None:
        return code
    view = VIEWS.get(name)
    if view is None:
        raise TypeError(f'{name} cannot be reduced: the types are {", ".join([*TYPES, *VIEWS])}. '
                        'Calls that only move data take any type')
    if op not in view[2]:
        raise TypeError(f'{op} of {name} is not offered (only {", ".join(sorted(view[2]))}): '
                        'convert the array to another type first')
    return TYPES[view[0]]


def factor_of(name, op):
    return VIEWS[name][1] if name in VIEWS and code_of(name, op) is not None else 1


class Typed:
    """An array whose elements mean something that its own type cannot say (see treering.typed)."""

    def __init__(self, array, name):
        if name not in TYPES:
            raise TypeError(f'unknown type {name!r}: the types are {", ".join(TYPES)}')
        self.array, self.name = array, name


def typed(array, name):
    """`array` with elements of type `name`, of the same size: typed(numpy.uint16 array, 'bfloat16')."""
    return Typed(array, name)


def describe(array, what, written=False):
    """The Array at `array`, or a TypeError or ValueError that says what is wrong with `what` (a word for the text)."""
    if isinstance(array, Typed):
        inner = describe(array.array, what, written)
        if inner.itemsize != SIZES[array.name]:
            raise TypeError(f'{what}: elements of {inner.itemsize} bytes cannot be {array.name}')
        return Array(inner.address, inner.count, inner.itemsize, array.name, inner.owner)
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(array, torch.Tensor):
        return of_tensor(array, what)
    if hasattr(array, '__array_interface__'):
        return of_numpy(array, what, written)
    if hasattr(array, '__dlpack__'):
        return of_dlpack(array, what, written)
    return of_buffer(array, what, written)


def fail_contiguous(what, how):
    raise ValueError(f'{what} is not contiguous: pass {how}, or a contiguous array to write into')


def read_only(what):
    raise ValueError(f'{what} is read-only, but the result would be written there')


@functools.lru_cache(maxsize=None)
def tensor_type(dtype):
    return str(dtype).rpartition('.')[2]


def of_tensor(tensor, what):
    if tensor.device.type != 'cpu':
        raise ValueError(f'{what} is on device {tensor.device}: this build moves tensors in host memory; use .cpu()')
    if tensor.is_sparse or tensor.layout != sys.modules['torch'].strided:
        raise ValueError(f'{what} is a sparse tensor: pass .to_dense()')
    if not tensor.is_contiguous():
        fail_contiguous(what, '.contiguous()')
    name = tensor_type(tensor.dtype)
    if name.startswith(('q', 'bits')):
        raise TypeError(f'{what} has type {tensor.dtype}: pass its integer representation')
    return Array(tensor.data_ptr(), tensor.numel(), tensor.element_size(), name, tensor)


def of_numpy(array, what, written):
    interface = array.__array_interface__
    address, frozen = interface['data']
    if interface['strides'] is not None:
        fail_contiguous(what, 'numpy.ascontiguousarray(...)')
    if written and frozen:
        read_only(what)
    if interface['typestr'][0] == '>':
        raise TypeError(f'{what} has the byte order of another machine ({interface["typestr"]})')
    if interface['typestr'][1] in 'OmMSU' or (interface['typestr'][1] == 'V' and array.dtype.fields):
        raise TypeError(f'{what} has type {array.dtype}, which has no meaning on another rank: pass numbers')
    return Array(address, array.size, array.itemsize, array.dtype.name, array)


def of_dlpack(array, what, written):
    device = array.__dlpack_device__()
    if device[0] != 1:
        raise ValueError(f'{what} is on DLPack device {tuple(map(int, device))}, not in host memory')
    if written:
        raise ValueError(f'{what}: DLPack does not say whether an array may be written to; '
                         'pass a NumPy array or a torch tensor')
    address, count, kind, bits, contiguous = _core.dlpack(array)
    if not contiguous:
        fail_contiguous(what, 'a contiguous copy')
    word = DLPACK.get(kind)
    if word is None:
        raise TypeError(f'{what} has a type (DLPack code {kind}) that is not known here')
    return Array(address, count, bits // 8, word if word == 'bool' else f'{word}{bits}', array)


def of_buffer(array, what, written):
    try:
        address, size, itemsize, form, frozen, contiguous = _core.buffer(array)
    except (TypeError, BufferError) as error:
        raise TypeError(f'{what} is a {type(array).__name__}: pass a NumPy array, a torch tensor or anything '
                        f'else with the buffer protocol ({error})') from None
    if not contiguous:
        fail_contiguous(what, 'a contiguous copy')
    if written and frozen:
        read_only(what)
    kind = form.lstrip('@=<')
    name = FORMATS.get(kind)
    if name is None and kind in ('l', 'q', 'L', 'Q', 'n', 'N'):
        name = ('u' if kind.isupper() else '') + f'int{8 * itemsize}'
    if name is None:
        raise TypeError(f'{what} has elements of format {form!r}, which have no meaning on another rank: pass numbers')
    return Array(address, size // itemsize, itemsize, name, array)
