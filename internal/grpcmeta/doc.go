// Package grpcmeta parses the parts of gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md) that routing needs: the
// model of a call and its timeout, and it encodes refusals. Messages of KServe's inference service
// (inference.proto) are parsed by the number of the one field that names the model. MessageModelReader does so
// for a stream of messages. The package never decodes a tensor, and never changes a message except for the
// model's name.
package grpcmeta
