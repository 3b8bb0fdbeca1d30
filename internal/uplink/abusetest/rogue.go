// Package abusetest is a child that abuses a parent while it has a valid certificate: RunAbuser floods, claims a
// false identity or sends garbage, and reconnects whenever it is disconnected. It is a separate package under uplink
// because QUIC is internal to package uplink. It serves benchmarks and tests, and is never imported by a tier.
package abusetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
	"google.golang.org/protobuf/proto"
)

// Kinds of abuse.
const (
	FloodSummaries = "floods"  // valid summaries, as fast as possible
	ClaimOtherZone = "lies"    // a hello with the path of another zone
	SendGarbage    = "garbage" // datagrams that are no statements
)

// AbuseCounts counts the actions of an abuser.
type AbuseCounts struct{ Sessions, Datagrams int }

// RunAbuser abuses the parent at addr until ctx ends.
func RunAbuser(ctx context.Context, kind, addr string, certs *identity.Certs) (n AbuseCounts, err error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return n, err
	}
	socket, err := net.ListenPacket("udp", ":0")
	if err != nil {
		return n, err
	}
	defer socket.Close()
	tr := &quic.Transport{Conn: socket}
	defer tr.Close()
	for ctx.Err() == nil {
		conn, err := openSession(ctx, tr, to, kind, certs)
		if err != nil {
			time.Sleep(time.Millisecond) // it is limited for a while; it keeps connecting
			continue
		}
		n.Sessions++
		n.Datagrams += sendAbuse(ctx, kind, conn, certs.ID())
		conn.CloseWithError(0, "")
	}
	return n, nil
}

// SendFutureBoot is a child whose clock was ahead: it opens one session, sends boot in its hello and in one summary,
// and ends the session once the parent has confirmed the summary.
func SendFutureBoot(ctx context.Context, addr string, certs *identity.Certs, boot uint64) error {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp", ":0")
	if err != nil {
		return err
	}
	defer socket.Close()
	tr := &quic.Transport{Conn: socket}
	defer tr.Close()
	conn, err := openSession(ctx, tr, to, "", certs)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	id := certs.ID()
	b, err := capacity.EncodeSummary(&capacity.Summary{Path: capacity.Path{Region: id.Region, Zone: id.Zone, Instance: id.Name}, Boot: boot, Seq: 1})
	if err != nil {
		return err
	}
	st, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := st.Write(append([]byte{2}, b...)); err != nil { // 2: a snapshot
		return err
	}
	if err := st.Close(); err != nil {
		return err
	}
	_, err = io.ReadFull(st, make([]byte, 1))
	return err
}

// openSession opens a session; a parent that refuses it does so after the hello.
func openSession(ctx context.Context, tr *quic.Transport, to net.Addr, kind string, certs *identity.Certs) (*quic.Conn, error) {
	conn, err := tr.Dial(ctx, to, certs.ClientTLS(uplink.ALPN, nil), &quic.Config{EnableDatagrams: true, HandshakeIdleTimeout: 3 * time.Second})
	if err != nil {
		return nil, err
	}
	control, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	id := certs.ID()
	hello := &uplinkpb.Hello{Version: 2, MinVersion: 1, Region: id.Region, Zone: id.Zone, Instance: id.Name, Boot: 1}
	if kind == ClaimOtherZone {
		hello.Zone = "another"
	}
	b, err := proto.Marshal(hello)
	if err != nil {
		return nil, err
	}
	if _, err := control.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return nil, err
	}
	_ = control.SetReadDeadline(time.Now().Add(time.Second)) // it is a live stream
	var word [4]byte
	if _, err := io.ReadFull(control, word[:]); err != nil && kind != ClaimOtherZone {
		return nil, err
	}
	return conn, nil
}

// sendAbuse continues until the parent ends the session.
func sendAbuse(ctx context.Context, kind string, conn *quic.Conn, id identity.ID) (sent int) {
	for ctx.Err() == nil && conn.Context().Err() == nil && kind != ClaimOtherZone {
		b := []byte{1, 0xff, 0xff} // the first byte of a summary, followed by invalid bytes
		if kind == FloodSummaries {
			b = encodeSummary(id, uint64(sent)+1)
		}
		if conn.SendDatagram(b) != nil {
			break
		}
		sent++
	}
	return sent
}

// encodeSummary is a valid summary, larger than most.
func encodeSummary(id identity.ID, seq uint64) []byte {
	d := capacity.SummaryDelta{Head: capacity.Summary{Path: capacity.Path{Region: id.Region, Zone: id.Zone, Instance: id.Name}, Boot: 1, Seq: seq}}
	for i := range 12 {
		d.ChangedModels = append(d.ChangedModels, capacity.ModelChange{Model: capacity.ModelCapacity{Name: fmt.Sprintf("model-%02d", i), Ready: 1, Total: 1, Running: int64(seq)}})
	}
	b, err := capacity.EncodeDelta(&d)
	if err != nil {
		panic(err) // it is valid
	}
	return append([]byte{1}, b...)
}
