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
	queryTimeout       = 5 * time.Second // if the caller's context has no deadline
	queryOverheadBytes = 4 << 10         // for the fields around a payload
)

// QueryChild sends a query to the child at path and waits for its answer, by default at most 5 s. An error of the
// child is returned as *QueryError.
func (p *Parent) QueryChild(ctx context.Context, path capacity.Path, kind string, payload []byte) ([]byte, error) {
	if len(payload) > MaxQueryBytes || len(kind) > maxTextBytes {
		return nil, fmt.Errorf("querying %s: %w", path, ErrTooLarge)
	}
	s := p.findSession(path)
	if s == nil {
		return nil, fmt.Errorf("querying %s: %w", path, ErrNoChild)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, queryTimeout)
		defer cancel()
	}
	answer, err := sendQuery(ctx, s.conn, kind, payload)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("querying %s: %w", path, err)
	}
	return answer, nil
}

func sendQuery(ctx context.Context, conn *quic.Conn, kind string, payload []byte) ([]byte, error) {
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
	if _, err := st.Write(append([]byte{kindQuery}, q...)); err != nil {
		return nil, err
	}
	st.Close()
	_, body, err := readMessage(st, MaxQueryBytes+queryOverheadBytes)
	if err != nil {
		return nil, err
	}
	return decodeAnswer(body)
}

func decodeAnswer(body []byte) ([]byte, error) {
	var a uplinkpb.Answer
	if err := proto.Unmarshal(body, &a); err != nil {
		return nil, wrapMalformed(err)
	}
	if a.Error != "" {
		return nil, &QueryError{Message: a.Error}
	}
	return a.Payload, nil
}

func decodeQuery(body []byte) (*uplinkpb.Ask, error) {
	var q uplinkpb.Ask
	if err := proto.Unmarshal(body, &q); err != nil {
		return nil, wrapMalformed(err)
	}
	if len(q.Kind) > maxTextBytes || len(q.Payload) > MaxQueryBytes {
		return nil, wrapMalformed(ErrTooLarge)
	}
	return &q, nil
}

// answerQuery handles one query on the child.
func (s *childEnd) answerQuery(st *quic.Stream) {
	defer st.CancelRead(0)
	st.SetDeadline(time.Now().Add(queryTimeout))
	kind, body, err := readMessage(st, MaxQueryBytes+queryOverheadBytes)
	var q *uplinkpb.Ask
	if err == nil && kind == kindQuery {
		q, err = decodeQuery(body)
	}
	if isMalformed(err) {
		s.closeConn(codeMalformed, "ask")
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
	if a.Payload, err = s.handleQuery(ctx, q); err != nil {
		a.Payload, a.Error = nil, err.Error()[:min(len(err.Error()), maxTextBytes)]
	}
	b, err := proto.Marshal(&a)
	if err != nil {
		st.CancelWrite(0)
		return
	}
	if _, err := st.Write(append([]byte{kindQuery}, b...)); err != nil {
		return
	}
	st.Close()
}

func (s *childEnd) handleQuery(ctx context.Context, q *uplinkpb.Ask) ([]byte, error) {
	if s.child.cfg.OnQuery == nil {
		return nil, errors.New("this node does not answer queries")
	}
	b, err := s.child.cfg.OnQuery(ctx, q.Kind, q.Payload)
	if err == nil && len(b) > MaxQueryBytes {
		return nil, ErrTooLarge
	}
	return b, err
}
