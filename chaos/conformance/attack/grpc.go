package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcCall opens a gRPC call without TLS and sends a message, or none.
func (t *targetFleet) grpcCall(ctx context.Context, key, method string, message []byte, wait time.Duration) (status string, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(t.gateway, "http://"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return "", err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		return "", err
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "chat"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"authorization", "Bearer " + key},
		{"x-model", "llama-3.1-8b"},
		{"x-spillway-deadline-ms", "700"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return "", err
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		return "", err
	}
	if message != nil {
		frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		if err := framer.WriteData(1, true, append(frame, message...)); err != nil {
			return "", err
		}
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return status, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := framer.WriteSettingsAck(); err != nil {
					return "", err
				}
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == ":status" || h.Name == "grpc-status" || h.Name == "grpc-message" {
					status += h.Name + "=" + h.Value + " "
				}
			}
			if f.StreamEnded() {
				return status, nil
			}
		case *http2.RSTStreamFrame:
			return status + "reset=" + f.ErrCode.String(), nil
		case *http2.GoAwayFrame:
			return status + "goaway=" + f.ErrCode.String(), nil
		}
	}
}

// modelInfer is a ModelInferRequest that names llama-3.1-8b (field 1).
var modelInfer = append([]byte{0x0a, 12}, "llama-3.1-8b"...)
