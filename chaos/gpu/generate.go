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

// oomMessage is what an engine that has run out of memory says.
const oomMessage = "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of which 38.00 MiB is free."

// errOOM ends what runs when the engine's memory is gone.
var errOOM = errors.New(oomMessage)

// generate answers one of the generating endpoints.
func (s *Server) generate(k kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		draw := s.chance.draw()
		s.taken.Add(1)
		s.seep()
		if s.refuseIll(w, draw) || s.sleeping(w) {
			return
		}
		j, ok := s.readJob(w, r, k)
		if !ok {
			return
		}
		defer s.shelf.use(j.model)()
		a, err := s.driver.submit(Request{Prefix: j.input.prefix, PromptTokens: j.input.tokens, OutputTokens: j.output})
		switch {
		case errors.Is(err, ErrFull):
			refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		case errors.Is(err, errOOM):
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		case err != nil:
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		defer s.settle(j, a)
		o := &outbox{server: s, job: j, answer: a, w: w, draw: draw, id: s.newID(k), created: time.Now().Unix()}
		if j.stream {
			o.stream(r.Context())
		} else {
			o.whole(r.Context())
		}
	}
}

// refuseIll answers for a worker whose mode refuses requests.
func (s *Server) refuseIll(w http.ResponseWriter, draw float64) bool {
	c := s.chaos.get()
	switch {
	case c.hits(ModeFail, draw):
		refuse(w, c.Status, "the worker was told to fail")
	case c.Mode == ModeOOM || s.chaos.out.Load():
		refuse(w, http.StatusInternalServerError, oomMessage)
	default:
		return false
	}
	s.metrics.finished(outcomeError)
	return true
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
	}
	return raw, err == nil // any other error is a client that left while it was sending
}

func (s *Server) readJob(w http.ResponseWriter, r *http.Request, k kind) (*job, bool) {
	raw, ok := s.readBody(w, r)
	if !ok {
		return nil, false
	}
	j, err := decode(k, raw, s.serves(raw), s.driver.limits(), s.cfg.Answers)
	switch {
	case errors.Is(err, errModel):
		refuse(w, http.StatusNotFound, strings.TrimPrefix(err.Error(), errModel.Error()+": "))
		return nil, false
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return nil, false
	}
	return j, true
}

// settle frees what an answer that did not end still holds, and counts how it ended.
func (s *Server) settle(j *job, a *answer) {
	switch {
	case s.driver.cancel(a):
		s.metrics.finished(outcomeAbort)
	case a.failed.Load():
		s.metrics.finished(outcomeError)
	case j.finish == "stop":
		s.metrics.finished(outcomeStop)
	default:
		s.metrics.finished(outcomeLength)
	}
}

func (s *Server) newID(k kind) string {
	prefix := "chatcmpl-"
	switch k {
	case completion:
		prefix = "cmpl-"
	case anthropic:
		prefix = "msg_"
	}
	n := s.ids.Add(1)
	return fmt.Sprintf("%s%016x%016x", prefix, mix(s.cfg.Seed^n), mix(n^uint64(s.started.UnixNano())))
}

// wait returns how many tokens there are once there are more than have; an error when the client has left or the
// engine has given up.
func (a *answer) wait(ctx context.Context, have int) (made int, ended bool, err error) {
	for {
		ended = a.ended.Load() // before made: what ended has all its tokens
		made = int(a.made.Load())
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
