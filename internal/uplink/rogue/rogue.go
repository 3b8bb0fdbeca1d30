package rogue

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// Kinds of misbehaviour.
const (
	Floods  = "floods"  // lawful statements, as fast as they leave
	Lies    = "lies"    // claims in its greeting to be another zone's
	Garbage = "garbage" // datagrams that are no statements
)

// Counts are what a rogue has done so far.
type Counts struct{ Sessions, Datagrams int }

// Run misbehaves towards the parent at addr until ctx ends.
func Run(ctx context.Context, kind, addr string, certs *identity.Certs) (n Counts, err error) {
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
		conn, err := greet(ctx, tr, to, kind, certs)
		if err != nil {
			time.Sleep(time.Millisecond) // it is kept out for a while; it goes on knocking
			continue
		}
		n.Sessions++
		n.Datagrams += misbehave(ctx, kind, conn, certs.ID())
		conn.CloseWithError(0, "")
	}
	return n, nil
}

// greet opens a session; a parent that refuses it does so after the greeting.
func greet(ctx context.Context, tr *quic.Transport, to net.Addr, kind string, certs *identity.Certs) (*quic.Conn, error) {
	conn, err := tr.Dial(ctx, to, certs.Client(uplink.ALPN, nil), &quic.Config{EnableDatagrams: true, HandshakeIdleTimeout: 3 * time.Second})
	if err != nil {
		return nil, err
	}
	control, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	id := certs.ID()
	hello := &uplinkpb.Hello{Version: 2, MinVersion: 1, Region: id.Region, Zone: id.Zone, Instance: id.Name, Boot: 1}
	if kind == Lies {
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
	if _, err := io.ReadFull(control, word[:]); err != nil && kind != Lies {
		return nil, err
	}
	return conn, nil
}

// misbehave goes on until the parent has had enough.
func misbehave(ctx context.Context, kind string, conn *quic.Conn, id identity.ID) (sent int) {
	for ctx.Err() == nil && conn.Context().Err() == nil && kind != Lies {
		b := []byte{1, 0xff, 0xff} // a statement's first byte, and nothing that can be one
		if kind == Floods {
			b = statement(id, uint64(sent)+1)
		}
		if conn.SendDatagram(b) != nil {
			break
		}
		sent++
	}
	return sent
}

// statement is a lawful one, larger than most.
func statement(id identity.ID, seq uint64) []byte {
	d := capacity.Delta{Head: capacity.Summary{Path: capacity.Path{Region: id.Region, Zone: id.Zone, Instance: id.Name}, Boot: 1, Seq: seq}}
	for i := range 12 {
		d.Changed = append(d.Changed, capacity.Change{Model: capacity.Model{Name: fmt.Sprintf("model-%02d", i), Ready: 1, Total: 1, Running: int64(seq)}})
	}
	b, err := capacity.EncodeDelta(&d)
	if err != nil {
		panic(err) // it is lawful
	}
	return append([]byte{1}, b...)
}
