"""The protocol between the nodes of a fit, without any I/O.

Messages and the time go in, messages and events come out: the same class runs in a fit and in a
simulation of thousands of fits. It reads no clock, draws no numbers but by its seed, never waits,
and knows neither sockets nor processes.

    transport --- bytes ---> frames.Reader --- frames ---> Protocol.receive ---> events (home)
    transport <-- bytes ---- frames.Writer <-- messages -- Protocol.outbox  <--- home's calls

======================  ==================================================================
`frames`, `pieces`      how messages lie in bytes
`outbox`                messages that wait to be written
`agreement`             who belongs together
`hops`, `orders`        blocks, their room, their way, and the end of the work
`shares`                what each node adds to the sums that all need
`collectives`           calls that all nodes make together
`machine`               all of it: what comes in is handed to the part that it is for
======================  ==================================================================
"""

from esvi_shm.transports.protocol.machine import Protocol

__all__ = ["Protocol"]
