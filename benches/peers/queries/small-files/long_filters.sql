-- s09: five hundred devices [ordered]
SELECT count(*), sum(retries) FROM readings WHERE device_id IN (
    0, 113, 226, 339, 452, 565, 678, 791, 904, 17, 130, 243, 356, 469, 582, 695, 808, 921, 34, 147,
    260, 373, 486, 599, 712, 825, 938, 51, 164, 277, 390, 503, 616, 729, 842, 955, 68, 181, 294, 407,
    520, 633, 746, 859, 972, 85, 198, 311, 424, 537, 650, 763, 876, 989, 102, 215, 328, 441, 554, 667,
    780, 893, 6, 119, 232, 345, 458, 571, 684, 797, 910, 23, 136, 249, 362, 475, 588, 701, 814, 927,
    40, 153, 266, 379, 492, 605, 718, 831, 944, 57, 170, 283, 396, 509, 622, 735, 848, 961, 74, 187,
    300, 413, 526, 639, 752, 865, 978, 91, 204, 317, 430, 543, 656, 769, 882, 995, 108, 221, 334, 447,
    560, 673, 786, 899, 12, 125, 238, 351, 464, 577, 690, 803, 916, 29, 142, 255, 368, 481, 594, 707,
    820, 933, 46, 159, 272, 385, 498, 611, 724, 837, 950, 63, 176, 289, 402, 515, 628, 741, 854, 967,
    80, 193, 306, 419, 532, 645, 758, 871, 984, 97, 210, 323, 436, 549, 662, 775, 888, 1, 114, 227,
    340, 453, 566, 679, 792, 905, 18, 131, 244, 357, 470, 583, 696, 809, 922, 35, 148, 261, 374, 487,
    600, 713, 826, 939, 52, 165, 278, 391, 504, 617, 730, 843, 956, 69, 182, 295, 408, 521, 634, 747,
    860, 973, 86, 199, 312, 425, 538, 651, 764, 877, 990, 103, 216, 329, 442, 555, 668, 781, 894, 7,
    120, 233, 346, 459, 572, 685, 798, 911, 24, 137, 250, 363, 476, 589, 702, 815, 928, 41, 154, 267,
    380, 493, 606, 719, 832, 945, 58, 171, 284, 397, 510, 623, 736, 849, 962, 75, 188, 301, 414, 527,
    640, 753, 866, 979, 92, 205, 318, 431, 544, 657, 770, 883, 996, 109, 222, 335, 448, 561, 674, 787,
    900, 13, 126, 239, 352, 465, 578, 691, 804, 917, 30, 143, 256, 369, 482, 595, 708, 821, 934, 47,
    160, 273, 386, 499, 612, 725, 838, 951, 64, 177, 290, 403, 516, 629, 742, 855, 968, 81, 194, 307,
    420, 533, 646, 759, 872, 985, 98, 211, 324, 437, 550, 663, 776, 889, 2, 115, 228, 341, 454, 567,
    680, 793, 906, 19, 132, 245, 358, 471, 584, 697, 810, 923, 36, 149, 262, 375, 488, 601, 714, 827,
    940, 53, 166, 279, 392, 505, 618, 731, 844, 957, 70, 183, 296, 409, 522, 635, 748, 861, 974, 87,
    200, 313, 426, 539, 652, 765, 878, 991, 104, 217, 330, 443, 556, 669, 782, 895, 8, 121, 234, 347,
    460, 573, 686, 799, 912, 25, 138, 251, 364, 477, 590, 703, 816, 929, 42, 155, 268, 381, 494, 607,
    720, 833, 946, 59, 172, 285, 398, 511, 624, 737, 850, 963, 76, 189, 302, 415, 528, 641, 754, 867,
    980, 93, 206, 319, 432, 545, 658, 771, 884, 997, 110, 223, 336, 449, 562, 675, 788, 901, 14, 127,
    240, 353, 466, 579, 692, 805, 918, 31, 144, 257, 370, 483, 596, 709, 822, 935, 48, 161, 274, 387
);

-- s10: a hundred conditions [ordered]
SELECT count(*), sum(retries) FROM readings WHERE
    (id = 0 AND device_id <> 0) OR
    (id = 5987 AND device_id <> 1) OR
    (id = 11974 AND device_id <> 2) OR
    (id = 17961 AND device_id <> 3) OR
    (id = 23948 AND device_id <> 4) OR
    (id = 29935 AND device_id <> 5) OR
    (id = 35922 AND device_id <> 6) OR
    (id = 41909 AND device_id <> 7) OR
    (id = 47896 AND device_id <> 8) OR
    (id = 53883 AND device_id <> 9) OR
    (id = 59870 AND device_id <> 10) OR
    (id = 65857 AND device_id <> 11) OR
    (id = 71844 AND device_id <> 12) OR
    (id = 77831 AND device_id <> 13) OR
    (id = 83818 AND device_id <> 14) OR
    (id = 89805 AND device_id <> 15) OR
    (id = 95792 AND device_id <> 16) OR
    (id = 101779 AND device_id <> 17) OR
    (id = 107766 AND device_id <> 18) OR
    (id = 113753 AND device_id <> 19) OR
    (id = 119740 AND device_id <> 20) OR
    (id = 125727 AND device_id <> 21) OR
    (id = 131714 AND device_id <> 22) OR
    (id = 137701 AND device_id <> 23) OR
    (id = 143688 AND device_id <> 24) OR
    (id = 149675 AND device_id <> 25) OR
    (id = 155662 AND device_id <> 26) OR
    (id = 161649 AND device_id <> 27) OR
    (id = 167636 AND device_id <> 28) OR
    (id = 173623 AND device_id <> 29) OR
    (id = 179610 AND device_id <> 30) OR
    (id = 185597 AND device_id <> 31) OR
    (id = 191584 AND device_id <> 32) OR
    (id = 197571 AND device_id <> 33) OR
    (id = 203558 AND device_id <> 34) OR
    (id = 209545 AND device_id <> 35) OR
    (id = 215532 AND device_id <> 36) OR
    (id = 221519 AND device_id <> 37) OR
    (id = 227506 AND device_id <> 38) OR
    (id = 233493 AND device_id <> 39) OR
    (id = 239480 AND device_id <> 40) OR
    (id = 245467 AND device_id <> 41) OR
    (id = 251454 AND device_id <> 42) OR
    (id = 257441 AND device_id <> 43) OR
    (id = 263428 AND device_id <> 44) OR
    (id = 269415 AND device_id <> 45) OR
    (id = 275402 AND device_id <> 46) OR
    (id = 281389 AND device_id <> 47) OR
    (id = 287376 AND device_id <> 48) OR
    (id = 293363 AND device_id <> 49) OR
    (id = 299350 AND device_id <> 50) OR
    (id = 305337 AND device_id <> 51) OR
    (id = 311324 AND device_id <> 52) OR
    (id = 317311 AND device_id <> 53) OR
    (id = 323298 AND device_id <> 54) OR
    (id = 329285 AND device_id <> 55) OR
    (id = 335272 AND device_id <> 56) OR
    (id = 341259 AND device_id <> 57) OR
    (id = 347246 AND device_id <> 58) OR
    (id = 353233 AND device_id <> 59) OR
    (id = 359220 AND device_id <> 60) OR
    (id = 365207 AND device_id <> 61) OR
    (id = 371194 AND device_id <> 62) OR
    (id = 377181 AND device_id <> 63) OR
    (id = 383168 AND device_id <> 64) OR
    (id = 389155 AND device_id <> 65) OR
    (id = 395142 AND device_id <> 66) OR
    (id = 401129 AND device_id <> 67) OR
    (id = 407116 AND device_id <> 68) OR
    (id = 413103 AND device_id <> 69) OR
    (id = 419090 AND device_id <> 70) OR
    (id = 425077 AND device_id <> 71) OR
    (id = 431064 AND device_id <> 72) OR
    (id = 437051 AND device_id <> 73) OR
    (id = 443038 AND device_id <> 74) OR
    (id = 449025 AND device_id <> 75) OR
    (id = 455012 AND device_id <> 76) OR
    (id = 460999 AND device_id <> 77) OR
    (id = 466986 AND device_id <> 78) OR
    (id = 472973 AND device_id <> 79) OR
    (id = 478960 AND device_id <> 80) OR
    (id = 484947 AND device_id <> 81) OR
    (id = 490934 AND device_id <> 82) OR
    (id = 496921 AND device_id <> 83) OR
    (id = 502908 AND device_id <> 84) OR
    (id = 508895 AND device_id <> 85) OR
    (id = 514882 AND device_id <> 86) OR
    (id = 520869 AND device_id <> 87) OR
    (id = 526856 AND device_id <> 88) OR
    (id = 532843 AND device_id <> 89) OR
    (id = 538830 AND device_id <> 90) OR
    (id = 544817 AND device_id <> 91) OR
    (id = 550804 AND device_id <> 92) OR
    (id = 556791 AND device_id <> 93) OR
    (id = 562778 AND device_id <> 94) OR
    (id = 568765 AND device_id <> 95) OR
    (id = 574752 AND device_id <> 96) OR
    (id = 580739 AND device_id <> 97) OR
    (id = 586726 AND device_id <> 98) OR
    (id = 592713 AND device_id <> 99);
