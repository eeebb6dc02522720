# cmake -DIN=FILE -DOUT=FILE -P string_literal.cmake: a text as C++ string literals, 8 KB each, which every
# compiler takes.
file(READ ${IN} text)
set(literals "")
string(LENGTH "${text}" length)
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND literals "R\"~~~(${piece})~~~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUT} "${literals}")
