package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// sendStoppedBodies sends a part of a body and then nothing, on a path that is passed through.
func sendStoppedBodies(ctx context.Context, t *targetFleet) (string, error) {
	const calls = 20
	var longest time.Duration
	var mu sync.Mutex
	var group sync.WaitGroup
	failures := make(chan error, calls)
	for i := range calls {
		path := []string{"/v1/chat/completions", "/v1/audio/transcriptions", "/v1/rerank", "/v1/embeddings"}[i%4]
		group.Go(func() {
			got, took, err := t.rawTimed(ctx, t.gateway, "POST "+path+" HTTP/1.1\r\nHost: chat\r\nAuthorization: Bearer "+t.keys["mallory"]+
				"\r\nX-Model: llama-3.1-8b\r\nX-Spillway-Deadline-Ms: 700\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"m", 25*time.Second)
			mu.Lock()
			longest = max(longest, took)
			mu.Unlock()
			if err != nil || !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") {
				failures <- fmt.Errorf("%s: after %.1f s the answer is %.100q, %v", path, took.Seconds(), got, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return "", err
	default:
	}
	return fmt.Sprintf("%d bodies stopped: every one answered within %.1f s (deadline 0.7 s)", calls, longest.Seconds()), nil
}

func openSilentGRPC(ctx context.Context, t *targetFleet) (string, error) {
	const calls = 20
	began := time.Now()
	var group sync.WaitGroup
	failures := make(chan error, calls)
	for range calls {
		group.Go(func() {
			if got, err := t.grpcCall(ctx, t.keys["single"], "/inference.GRPCInferenceService/ModelInfer", nil, 25*time.Second); err != nil {
				failures <- fmt.Errorf("a call without a message ends by %s %w", got, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return "", err
	default:
	}
	return fmt.Sprintf("%d calls without a message, concurrency limit 1: all ended within %.1f s (deadline 0.7 s)", calls, time.Since(began).Seconds()), nil
}

const (
	// bodyMemory is what the gateways and local instances of the fleet may hold of request bodies, in bytes. It is small, so
	// that it is full before this machine is.
	bodyMemory = 64 << 20
	// largeBodyBytes is the size of a large body, below routing.max_body of 8 MiB.
	largeBodyBytes = 7 << 20
	// largeBodies is how many are sent at a time: together more than four times bodyMemory.
	largeBodies = 40
	// largeBodiesHeld is how many find room: one tenant may take half of bodyMemory.
	largeBodiesHeld = bodyMemory / 2 / largeBodyBytes
	// memoryGrowthMB bounds by how much a process grows: what it may hold, the shorter buffers that the bodies were read into
	// before, and as much again that was not yet collected. All large bodies together are longer.
	memoryGrowthMB = 3 * bodyMemory >> 20
)

// holdLargeBodies has one tenant send more large bodies than the memory bound holds: first bodies that stop before their last byte,
// then whole ones whose worker does not answer. Those beyond the bound must be refused, the region's processes must stay small,
// and another tenant must be served meanwhile.
func holdLargeBodies(ctx context.Context, t *targetFleet) (string, error) {
	before := t.regionMemory()
	// Spaces between members are no part of the prompt: the body is refused for its bytes alone.
	text := chatBody(markHold, 8)
	text = "{" + strings.Repeat(" ", largeBodyBytes-len(text)) + text[1:]
	stopped, err := t.holdBodies(ctx, before, text, true)
	if err != nil {
		return "", fmt.Errorf("bodies that stop before their last byte: %w; memory %s", err, t.memoryGrowth(before))
	}
	whole, err := t.holdBodies(ctx, before, text, false)
	if err != nil {
		return "", fmt.Errorf("bodies whose worker does not answer: %w; memory %s", err, t.memoryGrowth(before))
	}
	return fmt.Sprintf("%d bodies of %d MiB at a time, room for %d MiB, half of it for one tenant: %s when they stop, %s when no worker answers; memory %s",
		largeBodies, largeBodyBytes>>20, bodyMemory>>20, stopped, whole, t.memoryGrowth(before)), nil
}

// holdBodies sends large bodies at the same time and holds those that are let in; stops holds back their last byte, and before is
// the memory of the attacked processes without them.
func (t *targetFleet) holdBodies(ctx context.Context, before []int64, text string, stops bool) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	answers := make(chan targetAnswer, largeBodies)
	for range largeBodies {
		group.Go(func() {
			var body io.Reader = strings.NewReader(text)
			if stops {
				body = io.MultiReader(strings.NewReader(text[:len(text)-1]), stoppedReader{ctx})
			}
			if got, err := t.sendSized(ctx, body, int64(len(text))); err == nil {
				answers <- got
			}
		})
	}
	refused := map[int]int{}
	late := time.After(20 * time.Second)
	check := time.NewTicker(50 * time.Millisecond)
	defer check.Stop()
	for n := 0; n < largeBodies-largeBodiesHeld || !stops && t.countHeld() < largeBodiesHeld; {
		select {
		case got := <-answers:
			if err := judgeBodyRefusal(got); err != nil {
				return "", err
			}
			refused[got.status]++
			n++
		case <-check.C:
			if err := t.judgeMemory(before); err != nil {
				return "", err
			}
		case <-late:
			return "", fmt.Errorf("of %d bodies %d are refused, and %d wait at workers; %d find room", largeBodies, n, t.countHeld(), largeBodiesHeld)
		}
	}
	if n := t.countHeld(); !stops && n != largeBodiesHeld {
		return "", fmt.Errorf("%d bodies wait at workers, %d find room", n, largeBodiesHeld)
	}
	for range 5 {
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions", t.keys["acme"], chatBody("hello", 8))
		if err != nil || got.status != http.StatusOK {
			return "", fmt.Errorf("meanwhile acme gets %d %.100s, %v", got.status, got.body, err)
		}
	}
	if err := t.judgeMemory(before); err != nil {
		return "", err
	}
	select {
	case got := <-answers:
		return "", fmt.Errorf("a body that had found room is answered with %d %.100s", got.status, got.body)
	default:
	}
	return fmt.Sprintf("%d held, refused by status %v, acme served", largeBodiesHeld, refused), nil
}

// judgeBodyRefusal reports an answer to a large body that is no refusal, or one that does not tell the client what to do.
func judgeBodyRefusal(got targetAnswer) error {
	switch got.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
	default:
		return fmt.Errorf("a body is answered with %d: %.100s", got.status, got.body)
	}
	if !strings.Contains(got.body, "memory for request bodies") || got.header.Get("Retry-After") == "" {
		return fmt.Errorf("the refusal does not name the bound, or when to try again: %d %.200s, Retry-After %q", got.status, got.body, got.header.Get("Retry-After"))
	}
	return nil
}

// sendSized posts a body of n bytes as mallory.
func (t *targetFleet) sendSized(ctx context.Context, body io.Reader, n int64) (targetAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.gateway+"/v1/chat/completions", body)
	if err != nil {
		return targetAnswer{}, err
	}
	req.ContentLength = n
	req.Header.Set("Authorization", "Bearer "+t.keys["mallory"])
	resp, err := t.client.Do(req)
	if err != nil {
		return targetAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return targetAnswer{resp.StatusCode, resp.Header, string(text)}, err
}

// stoppedReader has no byte until its context ends.
type stoppedReader struct{ ctx context.Context }

func (r stoppedReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

// countHeld counts the requests that the workers hold without an answer.
func (t *targetFleet) countHeld() (n int) {
	for _, v := range t.workers {
		v.withLock(func() { n += v.heldRequests })
	}
	return n
}

// residentMB is the memory of a process in MB, 0 where the system does not tell.
func residentMB(pid int) int64 {
	n, err := machine.ResidentBytes(pid)
	if err != nil {
		return 0
	}
	return n >> 20
}

// attackedNodes are the processes that the attackers' requests pass: the first gateway and its region's local instances.
func (t *targetFleet) attackedNodes() []fleet.Node {
	gateway := t.fleet.NodesByRole("regional")[0]
	nodes := []fleet.Node{gateway}
	for _, n := range t.fleet.NodesByRole("local") {
		if n.Region == gateway.Region {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// regionMemory is the memory of the attacked processes in MB.
func (t *targetFleet) regionMemory() []int64 {
	var out []int64
	for _, n := range t.attackedNodes() {
		out = append(out, residentMB(t.running.PID(n)))
	}
	return out
}

// judgeMemory reports an attacked process that has grown by more than memoryGrowthMB.
func (t *targetFleet) judgeMemory(before []int64) error {
	for i, now := range t.regionMemory() {
		if now-before[i] > memoryGrowthMB {
			return fmt.Errorf("%s has grown from %d to %d MB", t.attackedNodes()[i].ID(), before[i], now)
		}
	}
	return nil
}

// memoryGrowth is how the attacked processes have grown.
func (t *targetFleet) memoryGrowth(before []int64) string {
	var parts []string
	for i, now := range t.regionMemory() {
		parts = append(parts, fmt.Sprintf("%s %d -> %d MB", t.attackedNodes()[i].ID(), before[i], now))
	}
	return strings.Join(parts, ", ")
}
