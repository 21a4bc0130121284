package resp

// AppendWords splits a command typed as one line, its line end included or
// not, and appends its words to dst; a line of blanks has none. It is linear in
// the length of the line and writes over it: the words stand in its memory, as
// escapes only get shorter. It allocates only if dst is too short, and
// MaxWords says what is enough.
//
// The rules are Redis's, but that vertical tabs and form feeds are bytes like
// any other. Spaces, tabs and returns separate words. Between
// double quotes \n \r \t \b \a and \xHH are bytes, and a backslash takes any
// other byte as it is; between single quotes only \' is an escape. Quotes may
// begin within a word, but a word ends with them.
func AppendWords(dst [][]byte, line []byte) ([][]byte, *ProtocolError) {
	line = trimLineEnd(line)
	for i := 0; ; {
		for i < len(line) && isBlank(line[i]) {
			i++
		}
		if i == len(line) {
			return dst, nil
		}
		start, w := i, i
		for i < len(line) && !isBlank(line[i]) {
			c := line[i]
			i++
			if c != '"' && c != '\'' {
				line[w] = c
				w++
				continue
			}
			if i, w = unquote(line, i, w, c); i < 0 {
				return dst, errQuotes
			}
			break
		}
		// Its capacity ends with it: an append must not reach the next word.
		dst = append(dst, line[start:w:w])
	}
}

// MaxWords is the most words that a line of n bytes can have.
func MaxWords(n int) int { return (n + 1) / 2 }

// unquote copies what stands between quotes to line[w:]; i is the place after
// the first of them. It returns the place after the second, which a blank or
// the end has to follow, and where the copy ends; i is -1 if that is not so.
func unquote(line []byte, i, w int, quote byte) (int, int) {
	for i < len(line) {
		c := line[i]
		i++
		switch {
		case c == quote:
			if i < len(line) && !isBlank(line[i]) {
				return -1, w
			}
			return i, w
		case c == '\\' && i < len(line) && quote == '"':
			c = line[i]
			i++
			if c == 'x' && i+1 < len(line) {
				if high, low := hexDigit(line[i]), hexDigit(line[i+1]); high >= 0 && low >= 0 {
					c = byte(high<<4 | low)
					i += 2
				}
				break
			}
			c = escaped(c)
		case c == '\\' && i < len(line) && line[i] == '\'':
			c = '\''
			i++
		}
		line[w] = c
		w++
	}
	return -1, w
}

// escaped is the byte that a backslash and c stand for between double quotes.
func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// hexDigit is the value of a hexadecimal digit, -1 for any other byte.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// trimLineEnd cuts "\n" or "\r\n" off the end.
func trimLineEnd(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
