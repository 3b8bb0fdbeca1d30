package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quic-go/quic-go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

const (
	askTimeout  = 5 * time.Second // when the asker's context has no deadline
	askOverhead = 4 << 10         // for what surrounds a payload
)

// Ask puts a question to the child at p and waits for its answer, by default at most 5 s. The child's own error comes
// back as *AnswerError.
func (p *Parent) Ask(ctx context.Context, path capacity.Path, kind string, payload []byte) ([]byte, error) {
	if len(payload) > MaxAsk || len(kind) > maxText {
		return nil, fmt.Errorf("asking %s: %w", path, ErrTooLarge)
	}
	s := p.session(path)
	if s == nil {
		return nil, fmt.Errorf("asking %s: %w", path, ErrNoChild)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	answer, err := ask(ctx, s.conn, kind, payload)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	return answer, nil
}

func ask(ctx context.Context, conn *quic.Conn, kind string, payload []byte) ([]byte, error) {
	st, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	defer st.CancelRead(0)
	stop := context.AfterFunc(ctx, func() {
		st.CancelRead(0)
		st.CancelWrite(0)
	})
	defer stop()
	deadline, _ := ctx.Deadline()
	q, err := proto.Marshal(&uplinkpb.Ask{Kind: kind, TimeoutNano: int64(time.Until(deadline)), Payload: payload})
	if err != nil {
		return nil, err
	}
	if _, err := st.Write(append([]byte{kindAsk}, q...)); err != nil {
		return nil, err
	}
	st.Close()
	_, body, err := readMessage(st, MaxAsk+askOverhead)
	if err != nil {
		return nil, err
	}
	return decodeAnswer(body)
}

func decodeAnswer(body []byte) ([]byte, error) {
	var a uplinkpb.Answer
	if err := proto.Unmarshal(body, &a); err != nil {
		return nil, rubbish(err)
	}
	if a.Error != "" {
		return nil, &AnswerError{Message: a.Error}
	}
	return a.Payload, nil
}

func decodeAsk(body []byte) (*uplinkpb.Ask, error) {
	var q uplinkpb.Ask
	if err := proto.Unmarshal(body, &q); err != nil {
		return nil, rubbish(err)
	}
	if len(q.Kind) > maxText || len(q.Payload) > MaxAsk {
		return nil, rubbish(ErrTooLarge)
	}
	return &q, nil
}

// answer serves one question at the child.
func (s *session) answer(st *quic.Stream) {
	defer st.CancelRead(0)
	st.SetDeadline(time.Now().Add(askTimeout))
	kind, body, err := readMessage(st, MaxAsk+askOverhead)
	var q *uplinkpb.Ask
	if err == nil && kind == kindAsk {
		q, err = decodeAsk(body)
	}
	if isRubbish(err) {
		s.fail(codeRubbish, "ask")
		return
	}
	if err != nil || q == nil {
		st.CancelWrite(0)
		return
	}
	timeout := min(max(time.Duration(q.TimeoutNano), 0), time.Minute)
	ctx, cancel := context.WithTimeout(st.Context(), timeout)
	defer cancel()
	st.SetDeadline(time.Now().Add(timeout + time.Second))
	var a uplinkpb.Answer
	if a.Payload, err = s.handle(ctx, q); err != nil {
		a.Payload, a.Error = nil, err.Error()[:min(len(err.Error()), maxText)]
	}
	b, err := proto.Marshal(&a)
	if err != nil {
		st.CancelWrite(0)
		return
	}
	if _, err := st.Write(append([]byte{kindAsk}, b...)); err != nil {
		return
	}
	st.Close()
}

func (s *session) handle(ctx context.Context, q *uplinkpb.Ask) ([]byte, error) {
	if s.child.cfg.OnAsk == nil {
		return nil, errors.New("this node answers no questions")
	}
	b, err := s.child.cfg.OnAsk(ctx, q.Kind, q.Payload)
	if err == nil && len(b) > MaxAsk {
		return nil, ErrTooLarge
	}
	return b, err
}
