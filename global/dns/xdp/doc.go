// Package xdp answers plain DNS queries in the kernel's driver layer, before a packet reaches a socket.
//
// Responder loads a BPF program that is assembled here from single instructions, so that no C compiler is needed, and
// attaches it to network interfaces. The program answers A and AAAA queries over UDP and IPv4 for the names of an Image,
// with the bytes that the socket's fast path would send. It passes everything else to the socket: other types and names,
// negative answers, DNSSEC, cookies and other options, IPv6, fragments, IP options, VLAN tags, clients of one network that
// go to several regions, answers that must be shortened, and clients above the rate limit.
//
// An Image is immutable and replaced as a whole: the program reads it through one map in a map. The rate limit's table is
// shared memory with the server. Attachments are BPF links, which the kernel removes with the process.
//
// UDP checksums of queries are not verified, and those of answers are zero, which IPv4 allows (RFC 768).
package xdp
