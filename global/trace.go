package global

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// traceRequest returns what the gateways of all regions and their local instances have recorded about a request. This tier
// records nothing about single requests: DNS answers and redirects precede them.
func (s *statusReporter) traceRequest(ctx context.Context, q admin.TraceQuery) (*admin.TraceAnswer, error) {
	v, err := s.snapshot.requireSnapshot()
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayTraceTimeout)
	defer cancel()
	var asked []capacity.Path
	for r := range v.Regions {
		for _, c := range reachableGateways(v, r) {
			asked = append(asked, c.Summary.Path)
		}
	}
	answers := make([]*admin.TraceAnswer, len(asked))
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() { answers[i] = s.traceAtGateway(ctx, asked[i], payload) })
	}
	wg.Wait()
	out := &admin.TraceAnswer{RequestID: q.RequestID, Steps: []admin.TraceStep{}, Nodes: []admin.TraceNode{}}
	for _, a := range answers {
		out.MergeAnswer(a)
	}
	return out, nil
}

// traceAtGateway queries one gateway. If it does not answer, the answer has the reason.
func (s *statusReporter) traceAtGateway(ctx context.Context, gateway capacity.Path, payload []byte) *admin.TraceAnswer {
	out := new(admin.TraceAnswer)
	b, err := s.parent.QueryChild(ctx, gateway, admin.QueryTrace, payload)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return admin.UnansweredTrace("regional", gateway.String(), err)
	}
	return out
}
