package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// oomMessage is the error of an engine whose memory is exhausted.
const oomMessage = "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of which 38.00 MiB is free."

// errOOM fails running requests when the engine's memory is exhausted.
var errOOM = errors.New(oomMessage)

// generationHandler handles one of the generating endpoints.
func (s *Server) generationHandler(k endpointKind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		draw := s.chaosRand.drawFloat()
		s.takenRequests.Add(1)
		s.chaos.leakMemory()
		if s.refuseByChaos(w, draw) || s.refuseIfAsleep(w) {
			return
		}
		j, ok := s.readJob(w, r, k)
		if !ok || s.resetByChaos(w, r) || s.hangByChaos(w, r, j.stream) {
			return
		}
		defer s.adapters.acquireAdapter(j.model)()
		a, err := s.driver.submitRequest(EngineRequest{PrefixHashes: j.prompt.blockHashes, PromptTokens: j.prompt.tokens, OutputTokens: j.outputTokens})
		switch {
		case errors.Is(err, ErrFull):
			writeError(w, http.StatusServiceUnavailable, err.Error())
			return
		case errors.Is(err, errOOM):
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		case err != nil:
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		defer s.finishAnswer(j, a)
		o := &answerWriter{server: s, job: j, answer: a, w: w, chaosDraw: draw, id: s.newID(k), created: time.Now().Unix()}
		if j.stream {
			o.streamAnswer(r.Context())
		} else {
			o.writeWhole(r.Context())
		}
	}
}

// refuseByChaos answers for a worker whose mode refuses requests.
func (s *Server) refuseByChaos(w http.ResponseWriter, draw float64) bool {
	c := s.chaos.loadCurrent()
	switch {
	case c.appliesTo(ModeFail, draw):
		writeError(w, c.Status, "the worker is in chaos mode fail")
	case c.Mode == ModeLieHealth && c.Healthy:
		writeError(w, c.Status, "the worker is in chaos mode lie_health")
	case c.Mode == ModeOOM || s.chaos.memoryGone.Load():
		writeError(w, http.StatusInternalServerError, oomMessage)
	default:
		return false
	}
	s.metrics.countFinished(finishError)
	return true
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
	}
	return raw, err == nil // any other error means that the client left while sending
}

func (s *Server) readJob(w http.ResponseWriter, r *http.Request, k endpointKind) (*generationJob, bool) {
	raw, ok := s.readBody(w, r)
	if !ok {
		return nil, false
	}
	s.chaos.takePoison(raw)
	j, err := decodeJob(k, raw, s.servedName(raw), s.driver.engineLimits(), s.answerSeed())
	switch {
	case errors.Is(err, errModel):
		writeError(w, http.StatusNotFound, strings.TrimPrefix(err.Error(), errModel.Error()+": "))
		return nil, false
	case err != nil:
		writeError(w, http.StatusBadRequest, err.Error())
		return nil, false
	}
	return j, true
}

// finishAnswer releases what an incomplete answer still holds, and counts how it ended.
func (s *Server) finishAnswer(j *generationJob, a *pendingAnswer) {
	switch {
	case s.driver.cancelAnswer(a):
		s.metrics.countFinished(finishAbort)
	case a.failed.Load():
		s.metrics.countFinished(finishError)
	case j.finishReason == "stop":
		s.metrics.countFinished(finishStop)
	default:
		s.metrics.countFinished(finishLength)
	}
}

func (s *Server) newID(k endpointKind) string {
	prefix := "chatcmpl-"
	switch k {
	case kindCompletion:
		prefix = "cmpl-"
	case kindAnthropic:
		prefix = "msg_"
	}
	n := s.lastID.Add(1)
	return fmt.Sprintf("%s%016x%016x", prefix, splitMix64(s.cfg.Seed^n), splitMix64(n^uint64(s.started.UnixNano())))
}

// waitTokens waits for more tokens than have and returns their number; an error when the client has left or the
// engine has failed.
func (a *pendingAnswer) waitTokens(ctx context.Context, have int) (made int, ended bool, err error) {
	for {
		ended = a.ended.Load() // before made: an ended answer has all its tokens
		made = int(a.generated.Load())
		switch {
		case a.failed.Load():
			return made, false, errOOM
		case made > have || ended:
			return made, ended, nil
		}
		select {
		case <-a.notify:
		case <-ctx.Done():
			return made, false, ctx.Err()
		}
	}
}
