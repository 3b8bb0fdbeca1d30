package sim

// exchangePeerReports sends every node's peer report to the others.
func (p *globalTier) exchangePeerReports() {
	p.loop.addEvent(event{at: p.loop.now + int64(peerReportInterval), kind: evPeerReportDue})
	now := p.loop.currentTime()
	for _, n := range p.nodes {
		if !p.isUp(n) {
			continue
		}
		t := &peerReportMessage{from: n.nodeName(), body: n.core.encodePeerReport(now)}
		for _, o := range p.nodes {
			if o != n && p.canMeet(n, o) {
				if late, ok := p.network.datagramDelay(n.region, o.region); ok {
					p.loop.addEvent(event{at: p.loop.now + late, kind: evPeerReportArrival, index: o.index, payload: t})
				}
			}
		}
	}
}

// peerReportMessage is a node's peer report in transit to another.
type peerReportMessage struct {
	from string
	body []byte
}

func (p *globalTier) receivePeerReport(n *globalNode, t *peerReportMessage) {
	if p.isUp(n) {
		n.core.peerReports.PutReport(t.from, t.body, p.loop.currentTime())
	}
}
