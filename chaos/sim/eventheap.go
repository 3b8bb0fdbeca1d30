package sim

// eventKind is the kind of an event.
type eventKind uint8

const (
	evArrivalDue             eventKind = iota // the workload's next request is due
	evEngineStep                              // an engine is due for a step
	evAnswerFinish                            // an answer is complete
	evWaitExpired                             // the wait of a queued request has timed out
	evScrapeDue                               // a worker is scraped
	evScrapeNow                               // out of turn
	evScrapeResult                            // the reading is recorded
	evCheckWorkers                            // a zone's worker checks
	evServeWaiting                            // a zone pumps its queue
	evTakeSample                              // a sample of the series
	evGatewayArrival                          // a request arrives at a gateway
	evZoneArrival                             // a request arrives at a zone
	evPeerArrival                             // a request arrives at a peer region's gateway
	evPeerReturn                              // a request refused there is back
	evZoneSummaryDue                          // a zone sends its summary
	evZoneSummaryArrival                      // it arrives at a gateway
	evRegionSummaryDue                        // a gateway sends its region's summary
	evRegionSummaryArrival                    // it arrives at a global node
	evPeerReportDue                           // global nodes exchange peer reports
	evPeerReportArrival                       // a peer report arrives
	evRebuildView                             // a gateway rebuilds its view
	evRefreshSnapshot                         // the global tier refreshes its snapshots
	evMakePlan                                // the leader plans
	evPlanAgreed                              // a plan is in force
	evGlobalDirectiveDue                      // the global tier sends directives to gateways
	evGlobalDirectiveArrival                  // a directive arrives at a gateway
	evBalancerProbeDue                        // a baseline's balancer probes its replicas and peers
	evBalancerProbeResult                     // the replicas' answers arrive
	evBalancerPeerResult                      // a peer's answer arrives
	evPrequalProbeResult                      // one replica's answer to Prequal arrives
	evBalancerQueue                           // a balancer serves its queue
	evBalancerArrival                         // a request arrives at a balancer, from its client or a peer
	evReplicaArrival                          // a request arrives at a replica
	evAssignWorkers                           // a zone's instance updates its worker assignment
	evZoneDirectiveArrival                    // a gateway's directive arrives at an instance
	evInjectFault                             // a fault is injected
	evClearFault                              // a fault is cleared
	evCutDue                                  // a worker may have sent the last token of a stream that it breaks
	evWorkerReady                             // a restarted worker has loaded its model
	evObserve                                 // the observer probes the fleet
)

// event is one event. Events of the same time are processed in the order of scheduling.
type event struct {
	at       int64 // ns since the start
	sequence uint64
	kind     eventKind
	index    int32             // worker, zone, gateway, node or fault
	request  *simulatedRequest // request of the event
	payload  any               // message in transit
}

func (e *event) isBefore(o *event) bool {
	return e.at < o.at || e.at == o.at && e.sequence < o.sequence
}

// eventHeap is a 4-ary heap: half as deep as a binary one, and a node's children share cache lines.
type eventHeap struct {
	events       []event
	lastSequence uint64
}

func (a *eventHeap) addEvent(e event) {
	a.lastSequence++
	e.sequence = a.lastSequence
	a.events = append(a.events, e)
	i := len(a.events) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.isBefore(&a.events[up]) {
			break
		}
		a.events[i] = a.events[up]
		i = up
	}
	a.events[i] = e
}

func (a *eventHeap) popEvent() (event, bool) {
	n := len(a.events)
	if n == 0 {
		return event{}, false
	}
	first, last := a.events[0], a.events[n-1]
	a.events[n-1] = event{}
	a.events = a.events[:n-1]
	if n > 1 {
		a.siftDown(last)
	}
	return first, true
}

func (a *eventHeap) siftDown(e event) {
	i, n := 0, len(a.events)
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, n); c++ {
			if a.events[c].isBefore(&a.events[least]) {
				least = c
			}
		}
		if !a.events[least].isBefore(&e) {
			break
		}
		a.events[i] = a.events[least]
		i = least
	}
	a.events[i] = e
}
