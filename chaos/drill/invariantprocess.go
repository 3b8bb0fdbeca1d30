package drill

import "time"

func checkStorm(r *runFacts, c *invariantCount) {
	r.eachEvent(StormEnded, func(e *Event) {
		c.compare(max(e.Count, 1), e.Value <= 5, "%d reconnections took %.1f s", e.Count, e.Value)
	})
}

// resourceShare is how far memory and goroutines may be above their base at the end. resourceSlack is added, because a small process
// changes by more: 16 MiB of heap before a collection, and the goroutines of some idle connections.
const (
	resourceShare  = 0.05
	memorySlack    = 16 << 20
	goroutineSlack = 20
)

func checkResources(r *runFacts, c *invariantCount) {
	base, last := map[string]*Event{}, map[string]*Event{}
	r.eachEvent(ProcessUsage, func(e *Event) {
		if e.At < r.fault {
			base[e.Node] = e
		} else if e.At > r.clear+RecoveryTime/2 {
			last[e.Node] = e
		}
	})
	for node, b := range base {
		e := last[node]
		if e == nil {
			continue
		}
		c.compare(1, e.Value <= b.Value*(1+resourceShare)+memorySlack, "%s uses %.0f MiB at the end and used %.0f", node, e.Value/(1<<20), b.Value/(1<<20))
		c.compare(1, float64(e.Number) <= float64(b.Number)*(1+resourceShare)+goroutineSlack, "%s has %d goroutines at the end and had %d", node, e.Number, b.Number)
	}
}

// stopBound is the longest stop of a component, in seconds.
const stopBound = 10 * time.Second

func checkStops(r *runFacts, c *invariantCount) {
	r.eachEvent(ProcessStopped, func(e *Event) {
		c.compare(1, e.Value <= stopBound.Seconds(), "%s took %.1f s to stop", e.Node, e.Value)
	})
}

func checkForeignSummaries(r *runFacts, c *invariantCount) {
	r.eachEvent(SummaryRejected, func(e *Event) {
		c.compare(1, e.Text == "rejected", "%s accepted a summary that names %s", e.Node, e.Target)
	})
}

func checkSecrets(r *runFacts, c *invariantCount) {
	r.eachEvent(SecretsChecked, func(e *Event) { c.checked += max(e.Count, 1) })
	r.eachEvent(SecretFound, func(e *Event) { c.compare(1, false, "%s contains %s", e.Node, e.Text) })
}

// maxAmplification is the largest answer over UDP relative to its query.
const maxAmplification = 3

func checkAmplification(r *runFacts, c *invariantCount) {
	r.eachEvent(SizeReturned, func(e *Event) {
		c.compare(1, e.Value <= maxAmplification*float64(e.Number), "%s answered %d bytes with %.0f", e.Node, e.Number, e.Value)
	})
}

func checkCertificates(r *runFacts, c *invariantCount) {
	r.eachEvent(CertificateUsed, func(e *Event) {
		c.compare(1, e.Text == "refused", "%s accepted a certificate that is %s", e.Node, e.Code)
	})
}
