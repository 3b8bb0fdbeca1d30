package xdp

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// Layout of a packet and of the program's memory, in bytes.
const (
	ipAt, udpAt, dnsAt = 14, 34, 42
	minQuery           = 17  // header, the shortest name, type and class
	maxQuery           = 124 // a name of 64 octets and every accepted option fit
	headerLen          = 12
	optHeadLen         = 11
	subnetHeadLen      = 8 // of the option: code, length, family, source, scope
	maxReply           = 1232
	minLimit           = 512
	maxAmplification   = 3

	// The scratch memory: the query, so placed that the name is aligned, and the name's key.
	scratchBytes = 256
	queryAt      = 4
	keyAt        = 136
)

// Variables on the stack.
const (
	varLen = -8 * (iota + 1)
	varFrame
	varSource
	varTarget
	varZero
	varEnd
	varClass
	varFirst
	varNodes
	varRuns
	varAnswers
	varValues
	varKind
	varOpt
	varLimit
	varClient
	varScope
	varAnswerLen
	varTotal
	varKey
)

// XDP verdicts.
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTX   = 3
)

// program assembles the responder.
type program struct {
	ins    asm.Instructions
	label  string // of the next instruction
	labels int
}

func (p *program) add(all ...asm.Instruction) {
	for _, i := range all {
		if p.label != "" {
			i, p.label = i.WithSymbol(p.label), ""
		}
		p.ins = append(p.ins, i)
	}
}

func (p *program) mark(label string) {
	if p.label != "" { // two labels at one place
		p.add(asm.Mov.Reg(asm.R0, asm.R0))
	}
	p.label = label
}

func (p *program) newLabel(name string) string {
	p.labels++
	return fmt.Sprintf("%s%d", name, p.labels)
}

func (p *program) load(dst, src asm.Register, at int, size asm.Size) {
	p.add(asm.LoadMem(dst, src, int16(at), size))
}

func (p *program) store(dst asm.Register, at int, src asm.Register, size asm.Size) {
	p.add(asm.StoreMem(dst, int16(at), src, size))
}

func (p *program) get(dst asm.Register, variable int) { p.load(dst, asm.RFP, variable, asm.DWord) }
func (p *program) set(variable int, src asm.Register) { p.store(asm.RFP, variable, src, asm.DWord) }
func (p *program) imm(dst asm.Register, value uint64) {
	p.add(asm.LoadImm(dst, int64(value), asm.DWord))
}

// setImm sets a variable, with R5.
func (p *program) setImm(variable int, value int32) {
	p.add(asm.Mov.Imm(asm.R5, value))
	p.set(variable, asm.R5)
}

// passIf passes the packet to the socket if the comparison holds.
func (p *program) passIf(op asm.JumpOp, r asm.Register, value int32) { p.add(op.Imm(r, value, "pass")) }

// fetch looks up the first entry of a map, whose pointer is in R1, and passes the packet if there is none.
func (p *program) fetch() {
	p.add(asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, varZero), asm.FnMapLookupElem.Call())
	p.passIf(asm.JEq, asm.R0, 0)
}

// programMaps are the descriptors of the program's maps.
type programMaps struct{ image, scratch, counts, limits int }

// assembleProgram returns the program for queries to the ports. R6 is the context, R7 the scratch memory, R8 the image. A
// nil limit answers everyone.
func assembleProgram(m programMaps, ports []uint16, limit *Limit) asm.Instructions {
	p := &program{}
	p.checkPacket(ports)
	p.setImm(varZero, 0)
	p.add(asm.LoadMapPtr(asm.R1, m.image))
	p.fetch()
	p.add(asm.Mov.Reg(asm.R1, asm.R0))
	p.fetch()
	p.add(asm.Mov.Reg(asm.R8, asm.R0), asm.LoadMapPtr(asm.R1, m.scratch))
	p.fetch()
	p.add(asm.Mov.Reg(asm.R7, asm.R0))
	p.checkTarget()
	p.readQuery()
	p.findName()
	p.readQuestion()
	p.readOptions()
	p.findNetwork()
	p.findAnswer()
	if limit != nil {
		p.checkLimit(m.limits, limit)
	}
	p.writeAnswer()
	p.writeHeaders()
	p.add(asm.LoadMapPtr(asm.R1, m.counts), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, varKind), asm.FnMapLookupElem.Call())
	p.add(asm.JEq.Imm(asm.R0, 0, "sent"))
	p.load(asm.R1, asm.R0, 0, asm.DWord)
	p.add(asm.Add.Imm(asm.R1, 1))
	p.store(asm.R0, 0, asm.R1, asm.DWord)
	p.mark("sent")
	p.add(asm.Mov.Imm(asm.R0, xdpTX), asm.Return())
	p.mark("pass")
	p.add(asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	p.mark("drop")
	p.add(asm.Mov.Imm(asm.R0, xdpDrop), asm.Return())
	return p.ins
}

// checkPacket passes all but whole UDP packets over IPv4 to a port, and keeps lengths and addresses.
func (p *program) checkPacket(ports []uint16) {
	p.add(asm.Mov.Reg(asm.R6, asm.R1))
	p.load(asm.R2, asm.R6, 0, asm.Word)
	p.load(asm.R3, asm.R6, 4, asm.Word)
	p.add(asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, dnsAt+minQuery), asm.JGT.Reg(asm.R4, asm.R3, "pass"))
	p.load(asm.R4, asm.R2, 12, asm.Half)
	p.passIf(asm.JNE, asm.R4, 0x0008) // IPv4
	p.load(asm.R4, asm.R2, ipAt+9, asm.Byte)
	p.passIf(asm.JNE, asm.R4, 17) // UDP
	p.load(asm.R4, asm.R2, udpAt+2, asm.Half)
	p.add(asm.HostTo(asm.BE, asm.R4, asm.Half))
	for _, port := range ports {
		p.add(asm.JEq.Imm(asm.R4, int32(port), "port"))
	}
	p.add(asm.Ja.Label("pass"))
	p.mark("port")
	p.load(asm.R4, asm.R2, 0, asm.Byte)
	p.passIf(asm.JSet, asm.R4, 1) // broadcast and multicast
	p.load(asm.R4, asm.R2, ipAt, asm.Byte)
	p.passIf(asm.JNE, asm.R4, 0x45) // no options
	p.load(asm.R4, asm.R2, ipAt+6, asm.Half)
	p.passIf(asm.JSet, asm.R4, 0xffbf) // a fragment
	p.load(asm.R4, asm.R2, udpAt, asm.Half)
	p.passIf(asm.JEq, asm.R4, 0)
	p.load(asm.R4, asm.R2, ipAt+12, asm.Byte)
	p.passIf(asm.JEq, asm.R4, 0) // sources that are no hosts
	p.passIf(asm.JEq, asm.R4, 127)
	p.passIf(asm.JGE, asm.R4, 224)
	p.load(asm.R4, asm.R2, udpAt+4, asm.Half)
	p.load(asm.R5, asm.R2, ipAt+2, asm.Half)
	p.add(asm.HostTo(asm.BE, asm.R4, asm.Half), asm.HostTo(asm.BE, asm.R5, asm.Half))
	p.add(asm.Sub.Imm(asm.R5, 20), asm.JNE.Reg(asm.R4, asm.R5, "pass"))
	p.passIf(asm.JLT, asm.R4, 8+minQuery)
	p.passIf(asm.JGT, asm.R4, 8+maxQuery)
	p.add(asm.Sub.Imm(asm.R4, 8))
	p.set(varLen, asm.R4)
	p.add(asm.Mov.Reg(asm.R5, asm.R2), asm.Add.Reg(asm.R5, asm.R4), asm.Add.Imm(asm.R5, dnsAt), asm.JGT.Reg(asm.R5, asm.R3, "pass"))
	p.load(asm.R4, asm.R2, ipAt+12, asm.Word)
	p.set(varSource, asm.R4)
	p.load(asm.R4, asm.R2, ipAt+16, asm.Word)
	p.set(varTarget, asm.R4)
	p.add(asm.Sub.Reg(asm.R3, asm.R2))
	p.set(varFrame, asm.R3)
}

// checkTarget passes packets to other hosts.
func (p *program) checkTarget() {
	p.get(asm.R1, varTarget)
	p.passIf(asm.JEq, asm.R1, 0)
	for i := range maxAddrs {
		p.load(asm.R2, asm.R8, 4*i, asm.Word)
		p.add(asm.JEq.Reg(asm.R1, asm.R2, "target"))
	}
	p.add(asm.Ja.Label("pass"))
	p.mark("target")
}

// readQuery copies the query into the scratch memory and checks its header, as fastPath.parseQuestion does.
func (p *program) readQuery() {
	p.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, dnsAt), asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, queryAt))
	p.get(asm.R4, varLen)
	p.add(asm.FnXdpLoadBytes.Call())
	p.passIf(asm.JNE, asm.R0, 0)
	p.load(asm.R1, asm.R7, queryAt+2, asm.Byte)
	p.passIf(asm.JSet, asm.R1, 0xf8)
	p.load(asm.R1, asm.R7, queryAt+4, asm.Half)
	p.passIf(asm.JNE, asm.R1, 0x0100) // one question
	for at := 6; at < 10; at += 2 {
		p.load(asm.R1, asm.R7, queryAt+at, asm.Half)
		p.passIf(asm.JNE, asm.R1, 0)
	}
	p.load(asm.R1, asm.R7, queryAt+10, asm.Byte)
	p.passIf(asm.JNE, asm.R1, 0)
	p.load(asm.R1, asm.R7, queryAt+11, asm.Byte)
	p.passIf(asm.JGT, asm.R1, 1)
}

// Masks of eight octets.
const (
	eachLow  = 0x7f7f7f7f7f7f7f7f
	eachHigh = 0x8080808080808080
	eachOne  = 0x0101010101010101
)

// findName makes the key of the name in lower case, eight octets at a time, up to the first zero octet, and finds its
// slot, which is then in R1. Plain names contain no other zero octet, so a name that equals a slot's ends where that does.
func (p *program) findName() {
	p.add(asm.Mov.Imm(asm.R0, 0))
	for i := range maxNameLen / 8 {
		p.store(asm.R7, keyAt+8*i, asm.R0, asm.DWord)
	}
	p.imm(asm.R9, hashSeed)
	for i := range maxNameLen / 8 {
		p.load(asm.R1, asm.R7, queryAt+headerLen+8*i, asm.DWord)
		// Octets from A to Z: those without the high bit that reach it with 0x3f added, but not with 0x25.
		p.imm(asm.R0, eachLow)
		p.add(asm.Mov.Reg(asm.R2, asm.R1), asm.And.Reg(asm.R2, asm.R0), asm.Mov.Reg(asm.R3, asm.R2))
		p.imm(asm.R0, 0x3f*eachOne)
		p.add(asm.Add.Reg(asm.R3, asm.R0))
		p.imm(asm.R0, 0x25*eachOne)
		p.add(asm.Add.Reg(asm.R2, asm.R0), asm.Xor.Reg(asm.R2, asm.R3), asm.Mov.Reg(asm.R3, asm.R1), asm.Xor.Imm(asm.R3, -1), asm.And.Reg(asm.R2, asm.R3))
		p.imm(asm.R0, eachHigh)
		p.add(asm.And.Reg(asm.R2, asm.R0), asm.RSh.Imm(asm.R2, 2), asm.Or.Reg(asm.R1, asm.R2))
		// The first zero octet sets its high bit in R2; octets after it are removed.
		p.add(asm.Mov.Reg(asm.R3, asm.R1), asm.Xor.Imm(asm.R3, -1), asm.And.Reg(asm.R3, asm.R0))
		p.imm(asm.R0, eachOne)
		p.add(asm.Mov.Reg(asm.R2, asm.R1), asm.Sub.Reg(asm.R2, asm.R0), asm.And.Reg(asm.R2, asm.R3))
		more := p.newLabel("more")
		p.add(asm.JEq.Imm(asm.R2, 0, more))
		p.add(asm.Mov.Reg(asm.R3, asm.R2), asm.Neg.Imm(asm.R3, 0), asm.And.Reg(asm.R2, asm.R3), asm.RSh.Imm(asm.R2, 7), asm.Sub.Imm(asm.R2, 1))
		p.add(asm.And.Reg(asm.R1, asm.R2))
		p.hashWord(i)
		p.add(asm.Ja.Label("named"))
		p.mark(more)
		p.hashWord(i)
	}
	p.add(asm.Ja.Label("pass"))
	p.mark("named")
	for i := range nameProbes {
		next := p.newLabel("probe")
		p.add(asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, int32(i)), asm.And.Imm(asm.R1, nameSlots-1), asm.Mul.Imm(asm.R1, nameSlotSize))
		p.add(asm.Add.Imm(asm.R1, namesAt), asm.Add.Reg(asm.R1, asm.R8))
		for w := range maxNameLen / 8 {
			p.load(asm.R2, asm.R1, 8*w, asm.DWord)
			p.load(asm.R3, asm.R7, keyAt+8*w, asm.DWord)
			p.add(asm.JNE.Reg(asm.R2, asm.R3, next))
		}
		p.add(asm.Ja.Label("found"))
		p.mark(next)
	}
	p.add(asm.Ja.Label("pass"))
	p.mark("found")
}

// hashWord stores word i of the key, which is in R1, and adds it to the hash in R9.
func (p *program) hashWord(i int) {
	p.store(asm.R7, keyAt+8*i, asm.R1, asm.DWord)
	p.imm(asm.R0, hashPrime)
	p.add(asm.Xor.Reg(asm.R9, asm.R1), asm.Mul.Reg(asm.R9, asm.R0), asm.Mov.Reg(asm.R0, asm.R9), asm.RSh.Imm(asm.R0, 32), asm.Xor.Reg(asm.R9, asm.R0))
}

// readQuestion keeps the slot's fields and checks type and class. R9 then points to the end of the question.
func (p *program) readQuestion() {
	for field, variable := range map[int]int{slotClass: varClass, slotFirst: varFirst, slotNodes: varNodes, slotRuns: varRuns, slotAnswers: varAnswers, slotValues: varValues} {
		p.load(asm.R2, asm.R1, field, asm.Word)
		p.set(variable, asm.R2)
	}
	p.load(asm.R2, asm.R1, slotNameLen, asm.Word)
	p.passIf(asm.JEq, asm.R2, 0)
	p.passIf(asm.JGT, asm.R2, maxNameLen)
	p.add(asm.Mov.Reg(asm.R9, asm.R7), asm.Add.Reg(asm.R9, asm.R2))
	p.load(asm.R3, asm.R9, queryAt+headerLen, asm.Word)
	p.setImm(varKind, 0)
	p.add(asm.JEq.Imm(asm.R3, 0x01000100, "typed")) // A, IN
	p.passIf(asm.JNE, asm.R3, 0x01001c00)           // AAAA, IN
	p.setImm(varKind, 1)
	p.mark("typed")
	p.add(asm.Add.Imm(asm.R2, headerLen+4), asm.Add.Imm(asm.R9, queryAt+headerLen+4))
	p.set(varEnd, asm.R2)
	p.get(asm.R1, varLen)
	p.add(asm.JGT.Reg(asm.R2, asm.R1, "pass"), asm.Sub.Reg(asm.R1, asm.R2)) // R1: what follows the question
}

// readOptions accepts no OPT record, or one of version 0 without flags and with at most a Client Subnet of IPv4.
func (p *program) readOptions() {
	p.get(asm.R2, varSource)
	p.add(asm.HostTo(asm.BE, asm.R2, asm.Word))
	p.set(varClient, asm.R2)
	p.load(asm.R2, asm.R7, queryAt+11, asm.Byte)
	p.add(asm.JEq.Imm(asm.R2, 1, "opt"))
	p.passIf(asm.JNE, asm.R1, 0)
	p.setImm(varOpt, 0)
	p.setImm(varLimit, minLimit)
	p.add(asm.Ja.Label("network"))
	p.mark("opt")
	p.passIf(asm.JLT, asm.R1, optHeadLen)
	p.passIf(asm.JGT, asm.R1, optHeadLen+subnetHeadLen+4)
	p.set(varOpt, asm.R1)
	p.load(asm.R2, asm.R9, 0, asm.Byte)
	p.passIf(asm.JNE, asm.R2, 0)
	p.load(asm.R2, asm.R9, 1, asm.Half)
	p.passIf(asm.JNE, asm.R2, 0x2900)
	p.load(asm.R2, asm.R9, 5, asm.Word)
	p.passIf(asm.JNE, asm.R2, 0)
	p.load(asm.R2, asm.R9, 3, asm.Half)
	p.add(asm.HostTo(asm.BE, asm.R2, asm.Half), asm.JGE.Imm(asm.R2, minLimit, "least"), asm.Mov.Imm(asm.R2, minLimit))
	p.mark("least")
	p.add(asm.JLE.Imm(asm.R2, maxReply, "most"), asm.Mov.Imm(asm.R2, maxReply))
	p.mark("most")
	p.set(varLimit, asm.R2)
	p.load(asm.R2, asm.R9, 9, asm.Half)
	p.add(asm.HostTo(asm.BE, asm.R2, asm.Half), asm.Add.Imm(asm.R2, optHeadLen), asm.JNE.Reg(asm.R2, asm.R1, "pass"))
	p.add(asm.JEq.Imm(asm.R1, optHeadLen, "network"))
	p.passIf(asm.JLT, asm.R1, optHeadLen+subnetHeadLen+1)
	p.load(asm.R2, asm.R9, optHeadLen, asm.Half)
	p.passIf(asm.JNE, asm.R2, 0x0800) // Client Subnet
	p.load(asm.R2, asm.R9, optHeadLen+2, asm.Half)
	p.add(asm.HostTo(asm.BE, asm.R2, asm.Half), asm.Add.Imm(asm.R2, optHeadLen+4), asm.JNE.Reg(asm.R2, asm.R1, "pass"))
	p.load(asm.R2, asm.R9, optHeadLen+4, asm.Half)
	p.passIf(asm.JNE, asm.R2, 0x0100) // IPv4
	p.load(asm.R2, asm.R9, optHeadLen+7, asm.Byte)
	p.passIf(asm.JNE, asm.R2, 0)
	p.load(asm.R2, asm.R9, optHeadLen+6, asm.Byte) // R2: the source prefix length
	p.passIf(asm.JEq, asm.R2, 0)
	p.passIf(asm.JGT, asm.R2, 32)
	p.add(asm.Sub.Imm(asm.R1, optHeadLen+subnetHeadLen)) // R1: octets of the address
	p.add(asm.Mov.Reg(asm.R3, asm.R2), asm.Add.Imm(asm.R3, 7), asm.RSh.Imm(asm.R3, 3), asm.JNE.Reg(asm.R3, asm.R1, "pass"))
	p.load(asm.R3, asm.R9, optHeadLen+subnetHeadLen, asm.Word)
	p.add(asm.HostTo(asm.BE, asm.R3, asm.Word), asm.Mov.Reg(asm.R4, asm.R3))
	p.add(asm.LSh.Imm(asm.R1, 3), asm.Mov.Imm(asm.R5, 32), asm.Sub.Reg(asm.R5, asm.R1), asm.RSh.Reg(asm.R3, asm.R5), asm.LSh.Reg(asm.R3, asm.R5))
	p.add(asm.Mov.Imm(asm.R5, 32), asm.Sub.Reg(asm.R5, asm.R2), asm.RSh.Reg(asm.R4, asm.R5), asm.LSh.Reg(asm.R4, asm.R5))
	p.add(asm.JNE.Reg(asm.R3, asm.R4, "pass")) // bits after the prefix
	p.set(varClient, asm.R4)
	p.mark("network")
}

// findNetwork finds the leaf of the client's network, which is then in R1: geo's prefixTable.lookupAddr.
func (p *program) findNetwork() {
	p.get(asm.R2, varClient)
	p.get(asm.R3, varFirst)
	p.add(asm.RSh.Imm(asm.R2, 16), asm.LSh.Imm(asm.R2, 2), asm.Add.Reg(asm.R2, asm.R3))
	p.loadImage(asm.R1, asm.R2)
	for _, shift := range []int32{8, 0} {
		p.imm(asm.R2, 1<<31)
		p.add(asm.JGT.Reg(asm.R2, asm.R1, "leaf"))
		p.get(asm.R3, varNodes)
		p.add(asm.Sub.Reg(asm.R1, asm.R2), asm.Mul.Imm(asm.R1, 40), asm.Add.Reg(asm.R1, asm.R3), asm.And.Imm(asm.R1, imageMask), asm.Add.Reg(asm.R1, asm.R8))
		p.get(asm.R2, varClient)
		p.add(asm.RSh.Imm(asm.R2, shift), asm.And.Imm(asm.R2, 255), asm.Mov.Reg(asm.R3, asm.R2), asm.RSh.Imm(asm.R3, 6)) // R2: slot, R3: word
		p.add(asm.And.Imm(asm.R2, 63), asm.Mov.Imm(asm.R4, 63), asm.Sub.Reg(asm.R4, asm.R2))
		p.add(asm.Mov.Reg(asm.R5, asm.R1), asm.Add.Reg(asm.R5, asm.R3))
		p.load(asm.R2, asm.R5, 36, asm.Byte) // runs before the word
		p.load(asm.R5, asm.R1, 32, asm.Word) // the first run
		p.add(asm.Add.Reg(asm.R2, asm.R5), asm.Sub.Imm(asm.R2, 1))
		p.add(asm.LSh.Imm(asm.R3, 3), asm.Add.Reg(asm.R1, asm.R3))
		p.load(asm.R1, asm.R1, 0, asm.DWord)
		p.add(asm.LSh.Reg(asm.R1, asm.R4))
		p.countBits()
		p.get(asm.R3, varRuns)
		p.add(asm.Add.Reg(asm.R2, asm.R1), asm.LSh.Imm(asm.R2, 2), asm.Add.Reg(asm.R2, asm.R3))
		p.loadImage(asm.R1, asm.R2)
	}
	p.imm(asm.R2, 1<<31)
	p.add(asm.JGE.Reg(asm.R1, asm.R2, "pass"))
	p.mark("leaf")
}

// loadImage loads a word at an offset of the image.
func (p *program) loadImage(dst, at asm.Register) {
	p.add(asm.And.Imm(at, imageMask), asm.Add.Reg(at, asm.R8))
	p.load(dst, at, 0, asm.Word)
}

// countBits replaces R1 by its number of set bits, with R0 and R3.
func (p *program) countBits() {
	p.imm(asm.R0, 0x5555555555555555)
	p.add(asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Imm(asm.R3, 1), asm.And.Reg(asm.R3, asm.R0), asm.Sub.Reg(asm.R1, asm.R3))
	p.imm(asm.R0, 0x3333333333333333)
	p.add(asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Imm(asm.R3, 2), asm.And.Reg(asm.R3, asm.R0), asm.And.Reg(asm.R1, asm.R0), asm.Add.Reg(asm.R1, asm.R3))
	p.imm(asm.R0, 0x0f0f0f0f0f0f0f0f)
	p.add(asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Imm(asm.R3, 4), asm.Add.Reg(asm.R1, asm.R3), asm.And.Reg(asm.R1, asm.R0))
	p.imm(asm.R0, eachOne)
	p.add(asm.Mul.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 56))
}

// findAnswer finds the answer section of the leaf in R1, to which R9 then points, and passes answers that the socket path
// would shorten.
func (p *program) findAnswer() {
	p.add(asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 255))
	p.set(varScope, asm.R2)
	p.get(asm.R2, varValues)
	p.add(asm.RSh.Imm(asm.R1, 8), asm.JEq.Imm(asm.R1, 0, "pass"), asm.JGT.Reg(asm.R1, asm.R2, "pass"))
	p.get(asm.R2, varKind)
	p.get(asm.R3, varAnswers)
	p.add(asm.LSh.Imm(asm.R1, 1), asm.Add.Reg(asm.R1, asm.R2), asm.Mul.Imm(asm.R1, answerSlotSize), asm.Add.Reg(asm.R1, asm.R3))
	p.add(asm.And.Imm(asm.R1, imageMask), asm.Add.Reg(asm.R1, asm.R8), asm.Mov.Reg(asm.R4, asm.R1))
	p.load(asm.R1, asm.R4, 0, asm.Half)
	p.passIf(asm.JEq, asm.R1, 0)
	p.passIf(asm.JGT, asm.R1, maxAnswerLen)
	p.set(varAnswerLen, asm.R1)
	p.get(asm.R2, varEnd)
	p.add(asm.Add.Reg(asm.R1, asm.R2))
	p.get(asm.R2, varOpt)
	p.add(asm.Add.Reg(asm.R1, asm.R2))
	p.set(varTotal, asm.R1)
	p.get(asm.R2, varLimit)
	p.add(asm.JGT.Reg(asm.R1, asm.R2, "pass"))
	p.get(asm.R2, varLen)
	p.add(asm.Mul.Imm(asm.R2, maxAmplification), asm.JGT.Reg(asm.R1, asm.R2, "pass"))
	p.set(varAnswers, asm.R4)
}

// checkLimit counts the answer in the shared table, and passes the query if its network is above the rate: the socket path
// then limits it. It is responseLimiter.allowAnswer with one attempt.
func (p *program) checkLimit(table int, l *Limit) {
	tickMask := uint64(1)<<l.TickBits - 1
	// R9: the hash of network and class.
	p.get(asm.R9, varSource)
	p.get(asm.R1, varClass)
	p.add(asm.HostTo(asm.BE, asm.R9, asm.Word), asm.RSh.Imm(asm.R9, 8), asm.LSh.Imm(asm.R9, 32), asm.Or.Reg(asm.R9, asm.R1))
	p.imm(asm.R1, l.Seed)
	p.add(asm.Xor.Reg(asm.R9, asm.R1))
	for _, step := range []struct {
		shift int32
		mul   uint64
	}{{30, mixMul1}, {27, mixMul2}, {31, 1}} {
		p.imm(asm.R2, step.mul)
		p.add(asm.Mov.Reg(asm.R1, asm.R9), asm.RSh.Imm(asm.R1, step.shift), asm.Xor.Reg(asm.R9, asm.R1), asm.Mul.Reg(asm.R9, asm.R2))
	}
	// R5: the time in ticks.
	p.add(asm.FnKtimeGetNs.Call())
	p.imm(asm.R1, uint64(l.StartedAt))
	p.imm(asm.R2, tickMask)
	p.add(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000), asm.Mul.Imm(asm.R0, int32(l.TicksPerSecond)), asm.Div.Imm(asm.R0, 1_000_000), asm.And.Reg(asm.R0, asm.R2))
	p.add(asm.Mov.Reg(asm.R5, asm.R0))
	// R3: the slot's address, R0: its content. R1: the bucket, R4: the tag.
	p.add(asm.LoadMapValue(asm.R1, table, 0), asm.Mov.Reg(asm.R3, asm.R9), asm.And.Imm(asm.R3, int32(l.Slots/4-1)), asm.LSh.Imm(asm.R3, 5), asm.Add.Reg(asm.R1, asm.R3))
	p.add(asm.Mov.Reg(asm.R4, asm.R9), asm.RSh.Imm(asm.R4, int32(l.TickBits)), asm.LSh.Imm(asm.R4, int32(l.TickBits)))
	p.set(varKey, asm.R4)
	p.add(asm.Mov.Reg(asm.R3, asm.R1))
	p.load(asm.R0, asm.R1, 0, asm.DWord)
	for i := range 4 {
		other, next := p.newLabel("other"), p.newLabel("next")
		p.load(asm.R2, asm.R1, 8*i, asm.DWord)
		p.add(asm.JEq.Imm(asm.R2, 0, other))
		p.add(asm.Mov.Reg(asm.R4, asm.R2), asm.RSh.Imm(asm.R4, int32(l.TickBits)), asm.LSh.Imm(asm.R4, int32(l.TickBits)))
		p.get(asm.R9, varKey)
		p.add(asm.JNE.Reg(asm.R4, asm.R9, other))
		p.add(asm.Mov.Reg(asm.R0, asm.R2), asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, int32(8*i)), asm.Ja.Label("slot"))
		p.mark(other)
		p.imm(asm.R9, tickMask)
		p.add(asm.Mov.Reg(asm.R4, asm.R0), asm.And.Reg(asm.R4, asm.R9), asm.And.Reg(asm.R9, asm.R2), asm.JGE.Reg(asm.R9, asm.R4, next))
		p.add(asm.Mov.Reg(asm.R0, asm.R2), asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, int32(8*i)))
		p.mark(next)
	}
	p.mark("slot")
	// R1: the clock.
	p.imm(asm.R2, tickMask)
	p.get(asm.R4, varKey)
	p.add(asm.Mov.Reg(asm.R1, asm.R0), asm.And.Reg(asm.R1, asm.R2))
	p.add(asm.Mov.Reg(asm.R9, asm.R0), asm.Sub.Reg(asm.R9, asm.R1), asm.JNE.Reg(asm.R9, asm.R4, "idle"), asm.JGT.Reg(asm.R5, asm.R1, "idle"))
	p.add(asm.Mov.Reg(asm.R9, asm.R1), asm.Sub.Reg(asm.R9, asm.R5), asm.RSh.Imm(asm.R2, 1), asm.JGT.Reg(asm.R9, asm.R2, "idle"), asm.Ja.Label("clock"))
	p.mark("idle")
	p.add(asm.Mov.Reg(asm.R1, asm.R5))
	p.mark("clock")
	p.add(asm.Mov.Reg(asm.R9, asm.R1), asm.Sub.Reg(asm.R9, asm.R5))
	p.passIf(asm.JGT, asm.R9, int32(l.MaxTicksAhead))
	p.imm(asm.R2, tickMask)
	p.add(asm.Add.Imm(asm.R1, int32(l.TicksPerAnswer)), asm.And.Reg(asm.R1, asm.R2), asm.Or.Reg(asm.R1, asm.R4), asm.Mov.Reg(asm.R9, asm.R0))
	exchange := asm.CmpXchg.Mem(asm.R3, asm.R1, asm.DWord, 0)
	exchange.Constant = int64(asm.CmpXchg >> 8) // cilium/ebpf v0.22.0 encodes an addition without it
	p.add(exchange, asm.JNE.Reg(asm.R0, asm.R9, "pass"))
}

// writeAnswer makes room in the packet and writes header, records and OPT record.
func (p *program) writeAnswer() {
	p.get(asm.R2, varTotal)
	p.get(asm.R3, varFrame)
	p.add(asm.Add.Imm(asm.R2, dnsAt), asm.Sub.Reg(asm.R2, asm.R3), asm.Mov.Reg(asm.R1, asm.R6), asm.FnXdpAdjustTail.Call())
	p.passIf(asm.JNE, asm.R0, 0)
	p.get(asm.R9, varAnswers)
	p.load(asm.R1, asm.R7, queryAt+2, asm.Byte)
	p.add(asm.And.Imm(asm.R1, 1), asm.Or.Imm(asm.R1, 0x84)) // QR, AA, and RD and CD as in the query
	p.store(asm.R7, queryAt+2, asm.R1, asm.Byte)
	p.load(asm.R1, asm.R7, queryAt+3, asm.Byte)
	p.add(asm.And.Imm(asm.R1, 0x10))
	p.store(asm.R7, queryAt+3, asm.R1, asm.Byte)
	p.load(asm.R1, asm.R9, 2, asm.Half)
	p.store(asm.R7, queryAt+6, asm.R1, asm.Half)
	p.add(asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, queryAt), asm.Mov.Imm(asm.R2, dnsAt), asm.Mov.Imm(asm.R4, headerLen))
	p.storePacket()
	p.get(asm.R2, varEnd)
	p.add(asm.Add.Imm(asm.R2, dnsAt), asm.Mov.Reg(asm.R3, asm.R9), asm.Add.Imm(asm.R3, answerHeadLen))
	p.get(asm.R4, varAnswerLen)
	p.storePacket()
	p.get(asm.R4, varOpt)
	p.add(asm.JEq.Imm(asm.R4, 0, "written"))
	p.get(asm.R5, varEnd)
	p.add(asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Reg(asm.R3, asm.R5), asm.Add.Imm(asm.R3, queryAt))
	p.add(asm.Mov.Imm(asm.R1, (maxReply>>8)|(maxReply&0xff)<<8))
	p.store(asm.R3, 3, asm.R1, asm.Half)
	p.add(asm.JEq.Imm(asm.R4, optHeadLen, "plain"))
	p.get(asm.R1, varScope)
	p.store(asm.R3, optHeadLen+7, asm.R1, asm.Byte)
	p.mark("plain")
	p.get(asm.R2, varAnswerLen)
	p.add(asm.Add.Reg(asm.R2, asm.R5), asm.Add.Imm(asm.R2, dnsAt))
	p.storePacket()
	p.mark("written")
}

// storePacket writes R4 bytes from R3 to the packet at R2.
func (p *program) storePacket() {
	p.add(asm.Mov.Reg(asm.R1, asm.R6), asm.FnXdpStoreBytes.Call(), asm.JNE.Imm(asm.R0, 0, "drop"))
}

// writeHeaders addresses the packet to the sender of the query.
func (p *program) writeHeaders() {
	p.load(asm.R2, asm.R6, 0, asm.Word)
	p.load(asm.R3, asm.R6, 4, asm.Word)
	p.add(asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, dnsAt), asm.JGT.Reg(asm.R4, asm.R3, "drop"))
	for _, part := range []struct {
		at, other int
		size      asm.Size
	}{{0, 6, asm.Word}, {4, 10, asm.Half}, {udpAt, udpAt + 2, asm.Half}} {
		p.load(asm.R4, asm.R2, part.at, part.size)
		p.load(asm.R5, asm.R2, part.other, part.size)
		p.store(asm.R2, part.at, asm.R5, part.size)
		p.store(asm.R2, part.other, asm.R4, part.size)
	}
	const versionAndTOS, dontFragment, ttlAndUDP = 0x0045, 0x0040, 64 | 17<<8
	p.add(asm.Mov.Imm(asm.R1, versionAndTOS+dontFragment+ttlAndUDP)) // R1: the checksum
	p.add(asm.StoreImm(asm.R2, ipAt, versionAndTOS, asm.Half), asm.StoreImm(asm.R2, ipAt+4, 0, asm.Half), asm.StoreImm(asm.R2, ipAt+6, dontFragment, asm.Half))
	p.add(asm.StoreImm(asm.R2, ipAt+8, ttlAndUDP, asm.Half), asm.StoreImm(asm.R2, udpAt+6, 0, asm.Half))
	p.get(asm.R4, varTotal)
	p.add(asm.Add.Imm(asm.R4, 8), asm.Mov.Reg(asm.R5, asm.R4), asm.HostTo(asm.BE, asm.R4, asm.Half))
	p.store(asm.R2, udpAt+4, asm.R4, asm.Half)
	p.add(asm.Add.Imm(asm.R5, 20), asm.HostTo(asm.BE, asm.R5, asm.Half), asm.Add.Reg(asm.R1, asm.R5))
	p.store(asm.R2, ipAt+2, asm.R5, asm.Half)
	for at, variable := range map[int]int{ipAt + 12: varTarget, ipAt + 16: varSource} {
		p.get(asm.R4, variable)
		p.store(asm.R2, at, asm.R4, asm.Word)
		p.add(asm.Mov.Reg(asm.R5, asm.R4), asm.RSh.Imm(asm.R5, 16), asm.And.Imm(asm.R4, 0xffff), asm.Add.Reg(asm.R1, asm.R5), asm.Add.Reg(asm.R1, asm.R4))
	}
	for range 2 {
		p.add(asm.Mov.Reg(asm.R4, asm.R1), asm.RSh.Imm(asm.R4, 16), asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R4))
	}
	p.add(asm.Xor.Imm(asm.R1, -1))
	p.store(asm.R2, ipAt+10, asm.R1, asm.Half)
}
