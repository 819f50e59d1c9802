"""What the nodes of a service say to each other.

`bus` has the messages and directories (in memory for one node, `redis_bus` for several); `relay`
carries commands to the node that has the machine, `directory` lists the machines of all nodes,
`nodes` watches which of them are alive.
"""
