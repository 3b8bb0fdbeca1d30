// Package podset decides which workers a set of Kubernetes pods makes. Its input is what EndpointSlices and pods report,
// as plain values; package kube reads these from an API server.
//
//   - An address that is ready is a worker.
//   - One that is terminating or not ready is a worker that gets no new requests: its running answers finish, and what was
//     learned of it is kept for when it is ready again. It is removed when Kubernetes no longer lists it.
//   - A pod without a usable address or port, or with a role that is not accepted, is left out, with the reason.
//
// The result depends on the set alone and not on the order in which it arrives.
package podset
