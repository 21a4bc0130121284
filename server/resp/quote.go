package resp

// QuoteMax is how many bytes of an escaped argument an error shows.
const QuoteMax = 64

// Quote returns what a client sent in a form that is safe inside an error's
// line: between single quotes, with quotes, backslashes and everything that is
// not printable ASCII escaped (\r, \n, \t, \xNN), so that it can never end the
// line. At most QuoteMax bytes stand between the quotes, no escape is cut in
// two, and three dots after the closing quote tell that there was more.
func Quote(arg []byte) string {
	var room [QuoteMax + len("''...")]byte
	return string(AppendQuoted(room[:0], arg))
}

// AppendQuoted appends what Quote returns to dst.
func AppendQuoted(dst, arg []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '\'')
	start := len(dst)
	for _, c := range arg {
		var seq [4]byte
		esc := seq[:0]
		switch {
		case c == '\'' || c == '\\':
			esc = append(esc, '\\', c)
		case c == '\r':
			esc = append(esc, '\\', 'r')
		case c == '\n':
			esc = append(esc, '\\', 'n')
		case c == '\t':
			esc = append(esc, '\\', 't')
		case c < ' ' || c > '~':
			esc = append(esc, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			esc = append(esc, c)
		}
		if len(dst)-start+len(esc) > QuoteMax {
			return append(dst, "'..."...)
		}
		dst = append(dst, esc...)
	}
	return append(dst, '\'')
}
