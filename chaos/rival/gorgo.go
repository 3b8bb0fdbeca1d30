package rival

// GORGO's constants: what a token of prefill and one of a running request cost, fitted to Mistral-7B on an A100.
const (
	gorgoToken  = 0.094e-3 // seconds
	gorgoFactor = 1.0      // of a running request's tokens
)

// GORGO is the rule of its distributed proxies. The zero value is the rule as published.
type GORGO struct {
	// SecondsPerToken of prefill; 0 is the published one.
	SecondsPerToken float64
	// PriceQueues charges peers for their queues too, as the published rule does not.
	PriceQueues bool
}

// Node is one place that a request may go to, as a GORGO proxy knows it.
type Node struct {
	// RTT to it in seconds; 0 for the proxy's own.
	RTT float64
	// Unmatched tokens of the prompt that it would have to compute.
	Unmatched int64
	// Queued and Running are the tokens of requests that wait and that run there.
	Queued, Running int64
	// Local is the proxy's own.
	Local bool
	// Down leaves it out.
	Down bool
}

// Cost of a node in seconds.
func (g *GORGO) Cost(n *Node) float64 {
	perToken := g.SecondsPerToken
	if perToken == 0 {
		perToken = gorgoToken
	}
	cost := n.RTT + perToken*float64(n.Unmatched)
	if n.Local || g.PriceQueues {
		cost += perToken * (gorgoFactor*float64(n.Running) + float64(n.Queued))
	}
	return cost
}

// Choose names the cheapest node, a local one among equals; -1 when there is none.
func (g *GORGO) Choose(nodes []Node) int {
	best := -1
	var least float64
	for i := range nodes {
		n := &nodes[i]
		if n.Down {
			continue
		}
		if c := g.Cost(n); best < 0 || c < least || c == least && n.Local && !nodes[best].Local {
			best, least = i, c
		}
	}
	return best
}
