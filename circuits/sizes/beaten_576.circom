pragma circom 2.1.9;

include "../beaten.circom";

component main {public [state, head, terms, context]} = Beaten(576, 18);
