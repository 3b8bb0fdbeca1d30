package sim

// globalNode is one node of the global tier. It fails with its region, and receives what the network delivers.
type globalNode struct {
	index       int32 // index in the fleet
	region      *regionState
	core        *globalCore
	planEpoch   uint64 // of the plan in force at it
	deathCauses int    // active causes of its own death
}

// defaultNodes is the default number of global nodes.
const defaultNodes = 3

// nodeName is the name of the node's region: there is one node per region.
func (n *globalNode) nodeName() string { return n.region.name }
