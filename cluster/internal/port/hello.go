package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The handshake. Who dials sends:
//
//	class (1 byte: 'R' a stream for Raft, 'C' calls), "stint",
//	lowest and highest version of the protocol it speaks (1 byte each),
//	length of what follows (2 bytes, little endian),
//	cluster, own ID, ID of whom it means to reach: each a length (1 byte) and bytes
//
// and is answered with
//
//	"stint", code (1 byte, 0: welcome), version chosen (1 byte), length (1 byte)
//	and text of a sentence that says why it is refused
//
// Later versions may put more behind the last field: it is skipped.
const (
	classRaft  = 'R'
	classCalls = 'C'

	magic        = "stint"
	leastVersion = 1
	mostVersion  = 1

	helloHead = 1 + len(magic) + 2 + 2
	helloMost = 1024 // bytes behind the head
	nameMost  = 255  // bytes of a cluster or an ID

	tlsHandshake = 22 // first byte of TLS
)

// Identity is who a node is. Cluster is empty until it has joined one.
type Identity struct{ Cluster, ID string }

// Hello is what a node says when it connects.
type Hello struct {
	Raft    bool   // a stream for Raft, else calls
	Version uint8  // of the protocol that is spoken from here on
	Cluster string // it belongs to, empty if to none yet
	From    string // its ID
	To      string // whom it means to reach; empty: whoever is there
}

// Code says why a connection was refused. It is part of the protocol.
type Code uint8

const (
	WrongCluster  Code = 1 // the nodes belong to different clusters
	WrongReceiver Code = 2 // another node than the one that was meant answers here
	NotServing    Code = 3 // the node does not take such connections (yet)
	WrongVersion  Code = 4 // the nodes speak no common version of the protocol
)

// RefusedError is a refusal by the other side, with a sentence for people.
type RefusedError struct {
	Code Code
	Text string
}

func (e *RefusedError) Error() string { return "refused: " + e.Text }

var (
	errStranger = errors.New("this is no node of stint")
	errNoTLS    = errors.New("TLS is spoken from there, and this node has none")
)

// appendHello encodes a handshake. It fails if a name is too long.
func appendHello(dst []byte, h Hello) ([]byte, error) {
	class := byte(classCalls)
	if h.Raft {
		class = classRaft
	}
	size := 3 + len(h.Cluster) + len(h.From) + len(h.To)
	dst = append(append(dst, class), magic...)
	dst = append(dst, leastVersion, mostVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(size))
	for _, s := range []string{h.Cluster, h.From, h.To} {
		if len(s) > nameMost {
			return nil, fmt.Errorf("the name %.20q… has %d bytes, and %d is the most", s, len(s), nameMost)
		}
		dst = append(append(dst, byte(len(s))), s...)
	}
	return dst, nil
}

// readHello reads a handshake and not a byte beyond it. What is none is noticed at
// its first byte, and nothing is kept of it. A version that is not spoken here is a
// *RefusedError; the names are known all the same.
func readHello(r io.Reader) (h Hello, err error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return h, err
	}
	switch head[0] {
	case classRaft, classCalls:
		h.Raft = head[0] == classRaft
	case tlsHandshake:
		return h, errNoTLS
	default:
		return h, errStranger
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return h, err
	}
	rest := head[1:]
	size := int(binary.LittleEndian.Uint16(head[helloHead-2:]))
	if !bytes.HasPrefix(rest, []byte(magic)) || size > helloMost {
		return h, errStranger
	}
	least, most := rest[len(magic)], rest[len(magic)+1]
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, err
	}
	for _, s := range []*string{&h.Cluster, &h.From, &h.To} {
		if len(body) == 0 || len(body) <= int(body[0]) {
			return h, errStranger
		}
		end := 1 + int(body[0])
		*s, body = string(body[1:end]), body[end:]
	}
	if h.From == "" || least > most {
		return h, errStranger
	}
	if least > mostVersion || most < leastVersion {
		return h, &RefusedError{WrongVersion, fmt.Sprintf("versions %d to %d of the protocol are spoken here, and not %d to %d: update one node after the other, release by release",
			leastVersion, mostVersion, least, most)}
	}
	h.Version = min(most, mostVersion)
	return h, nil
}

// appendAnswer encodes the answer to a handshake; refused is nil for a welcome.
func appendAnswer(dst []byte, version uint8, refused *RefusedError) []byte {
	dst = append(dst, magic...)
	if refused == nil {
		return append(dst, 0, version, 0)
	}
	text := refused.Text[:min(len(refused.Text), 255)]
	return append(append(dst, byte(refused.Code), version, byte(len(text))), text...)
}

// readAnswer reads an answer and not a byte beyond it. A refusal is a
// *RefusedError.
func readAnswer(r io.Reader) (version uint8, err error) {
	var b [len(magic) + 3]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return 0, err
	}
	if b[0] != magic[0] {
		return 0, errStranger
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return 0, err
	}
	if string(b[:len(magic)]) != magic {
		return 0, errStranger
	}
	code, version := b[len(magic)], b[len(magic)+1]
	text := make([]byte, b[len(magic)+2])
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, err
	}
	if code != 0 {
		return 0, &RefusedError{Code(code), string(text)}
	}
	if version < leastVersion || version > mostVersion {
		return 0, errStranger
	}
	return version, nil
}
