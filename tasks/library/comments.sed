# Doxygen's input filter: comments become its documentation comments, and their characters stay as they are.
/^ *\/\/ ---/d
/^ *\/\/\( \|$\)/ {
  s/[\\@<>#%&"]/\\&/g
  s|//|///|
}
/[;,{)] *\/\/ / {
  h
  s|.*// ||
  s/[\\@<>#%&"]/\\&/g
  x
  s|\(.*\)// .*|\1///< |
  G
  s|\n||
}
