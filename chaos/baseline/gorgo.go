package baseline

// GORGO's constants: the cost of a token of prefill and of one of a running request, fitted to Mistral-7B on an A100.
const (
	gorgoSecondsPerToken = 0.094e-3 // seconds
	gorgoRunningFactor   = 1.0      // of a running request's tokens
)

// GORGO is the rule of its distributed proxies. The zero value is the published rule.
type GORGO struct {
	// SecondsPerToken of prefill; 0 means the published value.
	SecondsPerToken float64
	// PriceQueues also charges for the queues of peers, unlike the published rule.
	PriceQueues bool
}

// GORGONode is one possible target of a request, as a GORGO proxy sees it.
type GORGONode struct {
	// RTT to it in seconds; 0 for the proxy's own nodes.
	RTT float64
	// Unmatched tokens of the prompt, which it would have to compute.
	Unmatched int64
	// Queued and Running are the tokens of requests that wait and that run there.
	Queued, Running int64
	// Local marks the proxy's own nodes.
	Local bool
	// Down excludes it.
	Down bool
}

// NodeCost is the cost of a node in seconds.
func (g *GORGO) NodeCost(n *GORGONode) float64 {
	perToken := g.SecondsPerToken
	if perToken == 0 {
		perToken = gorgoSecondsPerToken
	}
	cost := n.RTT + perToken*float64(n.Unmatched)
	if n.Local || g.PriceQueues {
		cost += perToken * (gorgoRunningFactor*float64(n.Running) + float64(n.Queued))
	}
	return cost
}

// ChooseNode returns the cheapest node, a local one among equals; -1 when there is none.
func (g *GORGO) ChooseNode(nodes []GORGONode) int {
	best := -1
	var least float64
	for i := range nodes {
		n := &nodes[i]
		if n.Down {
			continue
		}
		if c := g.NodeCost(n); best < 0 || c < least || c == least && n.Local && !nodes[best].Local {
			best, least = i, c
		}
	}
	return best
}
