# SPDX-License-Identifier: Apache-2.0
"""Soft-RoCE in a machine: RDMA without a card, by the kernel's module rdma_rxe."""


def add_device(machine):
    """Adds the device rxe0 over eth0 and waits until its port is active. It takes the addresses of eth0."""
    # Without crc32_generic, rxe cannot be added.
    machine.run("modprobe -d $MODULES -a crc32_generic rdma_rxe ib_uverbs rdma_ucm && "
                "rdma link add rxe0 type rxe netdev eth0 && "
                "until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do sleep 0.1; done")


def packets(machine):
    """Returns how many packets the device has sent."""
    return int(machine.run("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"))
