"""What the nodes of a service say to each other.

messages   every message, and its wire format
transport  sends and receives messages: to a topic, with a retry, or in order in the background
bus        what is below: channels and directories, in memory for one node
redis_bus  the same in Redis, for several nodes
relay      commands to the node that has the machine, and their results
directory  the machines of all nodes
nodes      which nodes are alive, and who takes over from those that are not
"""
