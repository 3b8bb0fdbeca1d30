// Package grpcwire reads what a router must know of gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md): which model a call is
// for, how long it may take, and how a refusal is written. Messages of KServe's inference service (inference.proto) are
// read by the number of their one field that names the model. It never decodes a tensor, and never changes a message but
// for that name.
package grpcwire
