package resp

import (
	"math"
	"strconv"

	"github.com/tidwall/redcon"
)

// Writer appends replies to B in the version of the protocol that Proto names.
// Anything but RESP3 (the zero value too) is written as RESP2. Where RESP2 has
// no such type, the method says what is written instead, as Redis does.
//
// A Writer is a plain value: copy it, keep it on the stack, take B away. No
// method fails and none allocates beyond growing B.
type Writer struct {
	B     []byte
	Proto uint8
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.B = redcon.AppendInt(w.B, n) }

// Ints5 writes an array of five integers, the reply of every decision. It is
// the hot path of the server: most of these numbers have one or two digits.
func (w *Writer) Ints5(a, b, c, d, e int64) {
	out := append(w.B, "*5\r\n"...)
	for _, n := range [5]int64{a, b, c, d, e} {
		switch {
		case uint64(n) < 10:
			out = append(out, ':', byte('0'+n), '\r', '\n')
		case uint64(n) < 100:
			out = append(out, ':', byte('0'+n/10), byte('0'+n%10), '\r', '\n')
		default:
			out = append(out, ':')
			out = strconv.AppendInt(out, n, 10)
			out = append(out, '\r', '\n')
		}
	}
	w.B = out
}

// Bulk writes a string of any bytes. A nil slice is the empty string; the
// absent value is Null.
func (w *Writer) Bulk(s []byte) { w.B = redcon.AppendBulk(w.B, s) }

// BulkString writes a string of any bytes.
func (w *Writer) BulkString(s string) { w.B = redcon.AppendBulkString(w.B, s) }

// BulkInt writes an integer as a string, where Redis replies a number so.
func (w *Writer) BulkInt(n int64) {
	var digits [20]byte
	w.Bulk(strconv.AppendInt(digits[:0], n, 10))
}

// Simple writes a status line such as OK. A line break in it would end the
// reply early: it becomes a space.
func (w *Writer) Simple(s string) { w.B = redcon.AppendString(w.B, s) }

// OK writes the status line OK.
func (w *Writer) OK() { w.B = redcon.AppendOK(w.B) }

// Error writes an error. The line begins with the error's word, as in "ERR
// syntax error"; a line break in it becomes a space.
func (w *Writer) Error(line string) { w.B = redcon.AppendError(w.B, line) }

// Null writes the absent value: RESP2 has it as a string of length -1.
func (w *Writer) Null() {
	if w.Proto == RESP3 {
		w.B = append(w.B, "_\r\n"...)
		return
	}
	w.B = redcon.AppendNull(w.B)
}

// NullArray writes the absent array: RESP2 has it as an array of length -1,
// RESP3 has one absent value for all types.
func (w *Writer) NullArray() {
	if w.Proto == RESP3 {
		w.B = append(w.B, "_\r\n"...)
		return
	}
	w.B = append(w.B, "*-1\r\n"...)
}

// Array begins an array of n elements, which the caller writes next.
func (w *Writer) Array(n int) { w.B = redcon.AppendArray(w.B, n) }

// Map begins a map of n pairs: the caller writes n times a key and its value.
// RESP2 gets an array of 2n elements.
func (w *Writer) Map(n int) {
	if w.Proto == RESP3 {
		w.header('%', n)
		return
	}
	w.Array(2 * n)
}

// Set begins a set of n distinct elements. RESP2 gets an array.
func (w *Writer) Set(n int) {
	if w.Proto == RESP3 {
		w.header('~', n)
		return
	}
	w.Array(n)
}

// Push begins a message of n elements that answers no command. RESP2 gets an
// array.
func (w *Writer) Push(n int) {
	if w.Proto == RESP3 {
		w.header('>', n)
		return
	}
	w.Array(n)
}

// Double writes a number with the fewest digits that read back as the same
// one, without an exponent when it is of ordinary size. RESP2 gets a string.
func (w *Writer) Double(f float64) {
	var room [32]byte
	text := appendDouble(room[:0], f)
	if w.Proto == RESP3 {
		w.B = append(w.B, ',')
		w.B = append(w.B, text...)
		w.B = append(w.B, '\r', '\n')
		return
	}
	w.Bulk(text)
}

// Bool writes a truth value. RESP2 gets the integers 1 and 0.
func (w *Writer) Bool(v bool) {
	switch {
	case w.Proto == RESP3 && v:
		w.B = append(w.B, "#t\r\n"...)
	case w.Proto == RESP3:
		w.B = append(w.B, "#f\r\n"...)
	case v:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Verbatim writes a text meant for people as it is; format is three letters,
// "txt" or "mkd", and is cut or filled to three. RESP2 gets a string without
// the format.
func (w *Writer) Verbatim(format, text string) {
	if w.Proto != RESP3 {
		w.BulkString(text)
		return
	}
	w.header('=', len(text)+len("txt:"))
	for i := range 3 {
		c := byte(' ')
		if i < len(format) && format[i] != '\r' && format[i] != '\n' {
			c = format[i]
		}
		w.B = append(w.B, c)
	}
	w.B = append(w.B, ':')
	w.B = append(w.B, text...)
	w.B = append(w.B, '\r', '\n')
}

// BigNumber writes an integer of any size, given as decimal digits with an
// optional sign. RESP2 gets a string.
func (w *Writer) BigNumber(digits string) {
	if w.Proto != RESP3 {
		w.BulkString(digits)
		return
	}
	w.B = append(w.B, '(')
	w.B = append(w.B, digits...)
	w.B = append(w.B, '\r', '\n')
}

// header writes the line that begins a value of the given kind and length.
func (w *Writer) header(kind byte, n int) {
	w.B = append(w.B, kind)
	w.B = strconv.AppendInt(w.B, int64(n), 10)
	w.B = append(w.B, '\r', '\n')
}

// appendDouble appends f as RESP3 spells it: inf, -inf and nan are words.
func appendDouble(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	form := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e17) {
		form = 'e'
	}
	return strconv.AppendFloat(dst, f, form, -1, 64)
}
