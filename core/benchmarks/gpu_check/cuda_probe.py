"""Asks the CUDA driver what devices there are; run as a program of its own, since a driver stays
in a process that has asked it. Prints {"devices": [...], "cuda": "13.0", "driver_folder": ...} or
{"error": SENTENCE}."""
import ctypes
import json
import os

NAMES = ("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
         "/usr/lib64/nvidia/libcuda.so.1")
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


def open_driver():
    first = None
    for name in NAMES:
        try:
            return ctypes.CDLL(name), os.path.dirname(name)
        except OSError as error:
            first = first or error
    raise OSError(f"no CUDA driver: {first}")


def check(code, call):
    if code != 0:
        raise OSError(f"{call} says error {code}")


def devices(driver):
    check(driver.cuInit(0), "cuInit")
    version, count = ctypes.c_int(), ctypes.c_int()
    check(driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    check(driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    found = []
    for index in range(count.value):
        device, memory = ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(256)
        major, minor = ctypes.c_int(), ctypes.c_int()
        check(driver.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet")
        check(driver.cuDeviceGetName(name, len(name), device), "cuDeviceGetName")
        check(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device), "cuDeviceTotalMem")
        for value, attribute in ((major, CAPABILITY_MAJOR), (minor, CAPABILITY_MINOR)):
            check(driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device),
                  "cuDeviceGetAttribute")
        found.append({"name": name.value.decode(errors="replace"), "memory_bytes": memory.value,
                      "capability": f"{major.value}.{minor.value}"})
    return found, f"{version.value // 1000}.{version.value % 1000 // 10}"


def main():
    try:
        driver, folder = open_driver()
        found, version = devices(driver)
        if not found:
            raise OSError("the CUDA driver finds no device")
        print(json.dumps({"devices": found, "cuda": version, "driver_folder": folder}))
    except OSError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
