package sim

// kind of an event.
type kind uint8

const (
	evArrive    kind = iota // the workload's next request is due
	evStep                  // an engine has something to do
	evFinish                // an answer is complete
	evLate                  // a waiting request's patience is over
	evScrape                // a worker's page is read
	evProbe                 // out of turn
	evRead                  // and what it said is booked
	evPatrol                // a zone's patrol
	evPump                  // a zone's pump
	evSample                // the series
	evReach                 // a request reaches a gateway
	evEnter                 // and a zone
	evGuest                 // and a peer region's gateway
	evHome                  // and is back from there, refused
	evTell                  // a zone states its capacity
	evHear                  // a gateway hears that
	evReport                // a gateway states its region's
	evHeard                 // a node of the global tier hears that
	evTestify               // those nodes tell each other whom they hear
	evWitness               // and hear that
	evLook                  // a gateway looks at ages
	evView                  // the global tier does
	evPlan                  // the leader plans
	evAdopt                 // a plan is in force
	evDirect                // the global tier tells gateways of their peers
	evObey                  // a gateway hears that
	evProbes                // another system's balancer asks its replicas and its peers
	evProbed                // and hears what replicas say
	evPeerSaid              // what a peer says
	evAnswer                // and what one replica says to Prequal
	evQueue                 // it looks at its queue
	evForwarded             // a request reaches a balancer of another system: its client's, or a peer
	evArrived               // and a replica
	evDivide                // a zone's instance looks at whose its workers are
	evTold                  // and hears what a gateway says
	evFault                 // something breaks
	evMend                  // and is well again
	evServes                // a worker that loaded its model serves
)

// event is one thing that happens. Those of one moment happen in the order in which they were planned.
type event struct {
	at    int64 // ns since the start
	order uint64
	kind  kind
	who   int32 // worker, zone, gateway, node or fault
	ride  *ride // request
	what  any   // what is on its way
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// agenda is a heap of four children to the node: half as deep as one of two, and a node's children share cache lines.
type agenda struct {
	list  []event
	order uint64
}

func (a *agenda) add(e event) {
	a.order++
	e.order = a.order
	a.list = append(a.list, e)
	i := len(a.list) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&a.list[up]) {
			break
		}
		a.list[i] = a.list[up]
		i = up
	}
	a.list[i] = e
}

func (a *agenda) take() (event, bool) {
	n := len(a.list)
	if n == 0 {
		return event{}, false
	}
	first, last := a.list[0], a.list[n-1]
	a.list[n-1] = event{}
	a.list = a.list[:n-1]
	if n > 1 {
		a.sink(last)
	}
	return first, true
}

func (a *agenda) sink(e event) {
	i, n := 0, len(a.list)
	for {
		child := 4*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, n); c++ {
			if a.list[c].before(&a.list[least]) {
				least = c
			}
		}
		if !a.list[least].before(&e) {
			break
		}
		a.list[i] = a.list[least]
		i = least
	}
	a.list[i] = e
}
